/* SPDX-License-Identifier: Apache-2.0
 * The C interface of isthmus: libisthmus.so. Python (python/isthmus) is one caller of it; any
 * language that calls C can be another.
 *
 * Names     every function and type begins with isthmus_.
 * Errors    a function that can fail returns isthmus_error*: NULL is success. The caller frees the
 *           error. After a failure no output argument has been written. No C++ exception leaves the
 *           library; an internal fault is an error of the kind "internal".
 * Text      UTF-8, NUL-terminated. A `const char*` result belongs to the library and lives as long
 *           as what it was asked of; a `char**` output belongs to the caller: isthmus_text_free.
 * Numbers   sizes are size_t, values are IEEE 754 binary32 in the machine's order.
 * Threads   a codec is immutable: any number of threads may use one. Errors and texts belong to one
 *           thread at a time. Only isthmus_next, isthmus_answer_next and isthmus_session_free wait
 *           for other sites; isthmus_outer_values may wait for the run's own thread.
 * Changes   the interface only grows: a function keeps its meaning, a struct gains members at its
 *           end and says its own size first. A struct of an earlier header is shorter, and the
 *           members that it lacks are zero. One of a later header is longer: it is taken where the
 *           members that the library does not know are zero, else refused by name. ISTHMUS_ABI
 *           counts incompatible changes.
 */
#ifndef ISTHMUS_C_H
#define ISTHMUS_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ISTHMUS_ABI 1

/** ISTHMUS_ABI of the library that was loaded: another number than the header's is another library.
 */
int32_t isthmus_abi(void);
/** Version of the project: "0.1.0". */
const char* isthmus_version(void);

/** Frees a text that a function wrote through char**. NULL does nothing. */
void isthmus_text_free(char* text);

/* ---- errors ---- */

typedef struct isthmus_error isthmus_error;

/** What happened, with the thing, the value, the cause and the remedy. May have several lines. */
const char* isthmus_error_text(const isthmus_error* error);
/** "config", "usage", "environment", "run", "peer", "internal", or "error" for any other. */
const char* isthmus_error_kind(const isthmus_error* error);
/** Exit code of a command that ends with this error: 1 run, 2 usage, 3 config, 4 environment,
 *  5 peer. */
int32_t isthmus_error_exit_code(const isthmus_error* error);
/** JSON array of {code, where, line, column, message, hint, source_line}; "[]" if there are none.
 *  Only errors of configurations have diagnostics. */
const char* isthmus_error_diagnostics(const isthmus_error* error);
/** NULL does nothing. */
void isthmus_error_free(isthmus_error* error);

/* ---- the log ----
 *
 * One log for the process, on stderr until isthmus_log_keep(1). Any thread.
 */

/** 1: the last 4096 lines are kept for isthmus_log_take; 0: lines go to stderr again. */
void isthmus_log_keep(int32_t keep);
/** Number of kept lines. */
int64_t isthmus_log_waiting(void);
/** Hands out the kept lines: JSON array of {level, text}, oldest first; level is "debug", "info",
 *  "warning" or "error". If lines were lost since the last call, the first entry tells how many.
 */
isthmus_error* isthmus_log_take(char** json);

/* ---- what this build has, as JSON ---- */

/** Array of {name, text, source, deviations, keys, default_lr, default_momentum, default_alpha,
 *  state_values}: the outer methods. */
isthmus_error* isthmus_methods(char** json);
/** Array of {name, text, bits_per_value}: the codecs. bits_per_value counts scales, at the default
 *  block size. */
isthmus_error* isthmus_codecs(char** json);
/** Array of {name, type, default, range, text, used_by, example}: every key of a configuration. */
isthmus_error* isthmus_keys(char** json);

/* ---- configurations ---- */

/** Reads and checks the configuration at `path`, applies `count` overrides ("outer.H=50"), and
 *  writes every value in effect as one JSON object of sections. Relative paths become absolute.
 *  Errors: kind "config" with all diagnostics; "environment" when the file cannot be read. */
isthmus_error* isthmus_config_load(const char* path, const char* const* overrides, size_t count,
                                   char** json);
/** A TOML text as JSON, unchecked: for a run folder's config.resolved.toml, whose data may have
 *  moved. `name` is the file name in errors. */
isthmus_error* isthmus_toml_to_json(const char* toml, const char* name, char** json);

/* ---- codecs: encodings of float vectors as bytes (docs/internals/codecs.md, isthmus/codec.h) ----
 */

typedef struct isthmus_codec isthmus_codec;

/** Key of an encoding's random bits. Codecs that round to nearest ignore it. */
typedef struct isthmus_encode_key {
  size_t size;     /* sizeof(isthmus_encode_key) */
  uint64_t seed;   /* the round: equal on all workers */
  uint64_t tile;   /* index of the first tile of 4096 values in its vector */
  uint32_t worker; /* the worker that encodes, < 2^22 */
} isthmus_encode_key;

/** Makes a codec from its spelling: "int8", "int4:64", "topk:0.01:ef". Errors: kind "config",
 *  with the allowed spellings. */
isthmus_error* isthmus_codec_new(const char* spelling, isthmus_codec** codec);
/** NULL does nothing. */
void isthmus_codec_free(isthmus_codec* codec);
/** The canonical spelling, which isthmus_codec_new accepts. */
const char* isthmus_codec_name(const isthmus_codec* codec);
/** 1 if every value survives bit for bit. */
int32_t isthmus_codec_lossless(const isthmus_codec* codec);
/** 1 if a mean re-encodes badly (top-k): the exchange is then a gather. */
int32_t isthmus_codec_sparse(const isthmus_codec* codec);
/** 1 if the spelling asks for error feedback (":ef"); the sender keeps the residual. */
int32_t isthmus_codec_error_feedback(const isthmus_codec* codec);
/** Exact number of bytes of `values` encoded values. */
size_t isthmus_codec_bytes(const isthmus_codec* codec, size_t values);
/** Encodes `count` values into exactly isthmus_codec_bytes(codec, count) bytes at `out`. `key` may
 *  be NULL: all zero. The bytes are a function of (values, key) on every machine. */
isthmus_error* isthmus_codec_encode(const isthmus_codec* codec, const float* values, size_t count,
                                    const isthmus_encode_key* key, uint8_t* out, size_t out_bytes);
/** Decodes into `count` values at `out`. Errors: kind "run" for bytes that do not encode
 *  `count` values; `out` is then unspecified. */
isthmus_error* isthmus_codec_decode(const isthmus_codec* codec, const uint8_t* bytes, size_t size,
                                    float* out, size_t count);
/** sum[i] += decoded[i], one rounded addition each. Errors: as isthmus_codec_decode. */
isthmus_error* isthmus_codec_decode_add(const isthmus_codec* codec, const uint8_t* bytes,
                                        size_t size, float* sum, size_t count);

/* ---- runs: the outer loop around a trainer of the caller's ----
 *
 * The run has its own native threads. The caller's threads fetch the requests of each worker, serve
 * them and answer. The library calls no function of the caller. One thread at a time serves one
 * worker.
 *
 *   isthmus_session_new, isthmus_session_worker for each worker, isthmus_session_start, then
 *   for each worker: isthmus_next and isthmus_answer, until ISTHMUS_END or an error.
 */

typedef struct isthmus_session isthmus_session;

/** How and where a run takes place. Unused texts are NULL. Texts are copied. */
typedef struct isthmus_session_options {
  size_t size;                  /* sizeof(isthmus_session_options) */
  const char* config;           /* path of the TOML file */
  const char* const* overrides; /* "outer.H=50" */
  size_t override_count;
  const char* site;     /* name of this process's [[site]]; NULL: all workers are here */
  const char* listen;   /* HOST:PORT that the site binds; NULL: the port of its address */
  const char* key_file; /* secret key; NULL: keys/SITE.key beside the file */
  const char* out;      /* folder of the run; NULL: run.out, or a new one in runs/ */
  const char* resume;   /* "never", "auto", or a checkpoint's path; NULL: "never" */
  const char*
      link; /* "100Mbit/s,80ms" between all sites, in place of the file's; NULL: the file's */
  const char* kind;         /* kind of trainer, "numpy": sites of one kind compare `common` */
  const char* common;       /* JSON object of texts: values that steer the training; NULL: none */
  int64_t evaluation_parts; /* parts of a whole evaluation; 0: the run evaluates nothing; -1: the
                               parts of isthmus_samples, part k that of isthmus_validation */
  int32_t simulated;        /* 1: in virtual time over the links; the clock needs sim.step_time */
  int32_t force;            /* 1: removes a run that is in `out` */
  const char* const* addresses; /* "west=10.0.0.2:48200": in place of the file's */
  size_t address_count;
  const char* links; /* path of measured links, in place of the file's [[link]]; NULL: the file's */
  const char* const* changes; /* "train.steps=400": with `resume`, changes a key of the run from
                                 here on; the run's manifest records it */
  size_t change_count;
} isthmus_session_options;

/** One tensor of a worker's model. Name and shape are copied. */
typedef struct isthmus_parameter {
  size_t size;          /* sizeof(isthmus_parameter) */
  const char* name;     /* unique */
  const int64_t* shape; /* `dimensions` sizes; 0 dimensions: one value */
  size_t dimensions;
  float* values; /* C order, float32; owned by the caller. The library may read and write it at any
                    time; valid until isthmus_session_free returns 1 */
  int32_t layer; /* 0 .. L-1 with L <= 1000000, or -1: of no layer */
  float* gradient; /* as `values`, if outer.method is ddp; else NULL */
} isthmus_parameter;

/** Requests of a run to a worker. */
enum {
  ISTHMUS_NOTHING = 0,  /* the timeout has passed */
  ISTHMUS_TRAIN = 1,    /* take inner step `step`; answer with its loss */
  ISTHMUS_SAVE = 2,     /* write all state except parameters with isthmus_state_put, then answer */
  ISTHMUS_LOAD = 3,     /* read that state with isthmus_state_get, then answer */
  ISTHMUS_RESTART = 4,  /* the run starts again: reset the optimizer; parameters follow */
  ISTHMUS_EVALUATE = 5, /* losses of the current parameters, for parts[0 .. part_count) */
  ISTHMUS_END = 6,      /* the run has ended, see isthmus_session_end. No answer */
  /* For workers whose `values` are copies (isthmus_session_copies), about the elements
     [first, end) of all parameters concatenated: */
  ISTHMUS_READ = 7,  /* write them to `values`, where they stay valid until the next step */
  ISTHMUS_WROTE = 8, /* the run has written them to `values`: copy them back */
  /* With outer.method = "ddp", in place of ISTHMUS_TRAIN: */
  ISTHMUS_GRADIENTS = 9, /* forward and backward pass of inner step `step`: write the gradients to
                            `gradient`, and answer with the loss */
  ISTHMUS_APPLY = 10,    /* `gradient` holds the mean over all sites: take the optimizer's step, and
                            answer with its grad_norm and learning_rate. Not sent if a site is lost:
                            the run then loads an earlier state and continues from it */
  ISTHMUS_REPLAY = 11,   /* as ISTHMUS_APPLY, for a step that the other sites took while this site
                            was away: no gradients of this worker are requested */
  ISTHMUS_RANKS = 12     /* of isthmus_session_ranks: call isthmus_ranks, then answer */
};
typedef struct isthmus_request {
  size_t size; /* sizeof(isthmus_request), set by the caller */
  int32_t kind;
  int64_t step;         /* of every request for a step */
  const int64_t* parts; /* of ISTHMUS_EVALUATE; valid until the answer */
  size_t part_count;
  int32_t wrote; /* 1: the run has written parameters since the last ISTHMUS_TRAIN */
  int64_t first; /* of ISTHMUS_READ and ISTHMUS_WROTE */
  int64_t end;
  int64_t until; /* of ISTHMUS_TRAIN: after each answer isthmus_next returns the next step at once,
                    up to step `until` >= step, with no other request between them. */
  int64_t log_lines; /* as isthmus_log_waiting: 0 spares the caller a call */
} isthmus_request;

/** A worker's answer to a step (ISTHMUS_TRAIN, ISTHMUS_GRADIENTS, ISTHMUS_APPLY, ISTHMUS_REPLAY).
 *  A loss or gradient norm that is not finite fails the run as diverged, unless the step is
 *  skipped. */
typedef struct isthmus_step {
  size_t size;      /* sizeof(isthmus_step) */
  double loss;      /* mean over this worker's targets, before the update */
  double grad_norm; /* before clipping; 0: not known */
  int64_t tokens;   /* targets in the mean; weight of the worker's contribution, except in ddp */
  double learning_rate;
  int32_t skipped; /* 1: the step changed nothing (a gradient scaler saw an overflow) */
} isthmus_step;

/** Reads and checks the configuration. Writes nothing and opens no socket. */
isthmus_error* isthmus_session_new(const isthmus_session_options* options,
                                   isthmus_session** session);
/** Every value of the configuration in effect, as JSON. Belongs to the session. */
const char* isthmus_session_config(const isthmus_session* session);
/** outer.placement, which is not among those values, since it moves no bit: "host", "device" or
 *  "ranks". */
const char* isthmus_session_placement(const isthmus_session* session);
/** Workers of the whole run; workers of this process; number of this process's first worker. */
int32_t isthmus_session_workers(const isthmus_session* session);
int32_t isthmus_session_local(const isthmus_session* session);
int32_t isthmus_session_first(const isthmus_session* session);
/** Inner steps of the run. */
int64_t isthmus_session_steps(const isthmus_session* session);
/** Sets the parameters of a worker of this process: the same parameters in the same order at every
 *  worker and site, holding the initial values. Before isthmus_session_start, once for each worker.
 */
isthmus_error* isthmus_session_worker(isthmus_session* session, int32_t worker,
                                      const isthmus_parameter* parameters, size_t count);
/** Declares `values` to be copies of parameters that are elsewhere, on a device or in another type:
 *  the run sends ISTHMUS_READ before it reads them and ISTHMUS_WROTE after it has written them.
 *  During ISTHMUS_EVALUATE they hold the evaluated parameters. Before isthmus_session_start. */
isthmus_error* isthmus_session_copies(isthmus_session* session, int32_t worker);
/** A collective of a site's ranks (processes), which the caller has: 0 on success. `bytes` has
 * `count` bytes. The call is made inside isthmus_ranks and isthmus_outer_values, on their thread,
 * and blocks until its bytes are there. */
enum {
  ISTHMUS_RANKS_BEGIN = 0,     /* at rank 0: each other rank is to call isthmus_ranks once */
  ISTHMUS_RANKS_BROADCAST = 1, /* rank 0's bytes, to all */
  ISTHMUS_RANKS_SEND = 2,      /* to rank `peer`; the caller only reads them */
  ISTHMUS_RANKS_RECEIVE = 3    /* from rank `peer`, in order */
};
typedef int32_t (*isthmus_ranks_call)(void* context, int32_t operation, int32_t peer, void* bytes,
                                      size_t count);
/** outer.placement = "ranks": each of a site's `ranks` processes holds a share of the outer state,
 * a lane of each fragment. All make a session of the same configuration; rank 0 alone starts
 * it. The parameters of the other ranks have no `values`. Before isthmus_session_worker. Errors:
 * kind "config". */
isthmus_error* isthmus_session_ranks(isthmus_session* session, int32_t rank, int32_t ranks,
                                     isthmus_ranks_call call, void* context);
/** Takes part in one request to the ranks: at rank 0 once while ISTHMUS_RANKS is open, before its
 * answer, at the others once for each ISTHMUS_RANKS_BEGIN. Errors: kind "config" where the method's
 * outer state cannot be shared, and for a second time; "run" when a call has failed, and with it
 * the run. */
isthmus_error* isthmus_ranks(isthmus_session* session, int32_t worker);
/** Collectives that the library has called so far. A binding whose functions an exception may end
 * without a result compares this with its own count. */
int64_t isthmus_ranks_calls(const isthmus_session* session);
/** Begins the run on threads of the library, and returns at once. */
isthmus_error* isthmus_session_start(isthmus_session* session);
/** Waits for the worker's next request, for at most `timeout_ns`. Errors: the run has failed; the
 *  call of every worker returns the error. */
isthmus_error* isthmus_next(isthmus_session* session, int32_t worker, int64_t timeout_ns,
                            isthmus_request* request);
/** Answers the worker's request. `step`: the result, if the request was for a step, else NULL. */
isthmus_error* isthmus_answer(isthmus_session* session, int32_t worker, const isthmus_step* step);
/** isthmus_answer and, if it succeeds, isthmus_next. Errors: those of both; `request` has been
 * written only if both have succeeded. */
isthmus_error* isthmus_answer_next(isthmus_session* session, int32_t worker,
                                   const isthmus_step* step, int64_t timeout_ns,
                                   isthmus_request* request);
/** Answers ISTHMUS_EVALUATE: sum of losses and number of targets of each part, in order. */
isthmus_error* isthmus_answer_losses(isthmus_session* session, int32_t worker,
                                     const double* loss_sums, const int64_t* tokens, size_t count);
/** Writes the outer parameters of parameter number `parameter`, its `count` values, during
 *  ISTHMUS_TRAIN; after ISTHMUS_END those of the run's last checkpoint, which a worker's first such
 *  call reads. The worker's own parameters do not change. Errors: kind "run" at a step that the
 *  site takes while it is cut off, or repeats, when there are no outer parameters, and if the last
 *  checkpoint is not that of the last step; "environment" if the checkpoint cannot be read. */
isthmus_error* isthmus_outer_values(isthmus_session* session, int32_t worker, size_t parameter,
                                    float* values, size_t count);

/** The samples of the file's own data ([data], train.context, train.global_batch), as the built-in
 *  trainer takes them: a trainer that trains on them sees what the built-in trainer of this site
 *  would. The worker has `samples` sequences of `context` token ids at a step, and an evaluation
 *  has `parts` parts, 0 where there is no validation data. The first call opens the files.
 *  Any time after isthmus_session_new, by one thread at a time for each worker. */
isthmus_error* isthmus_samples(isthmus_session* session, int32_t worker, int64_t* samples,
                               int64_t* context, int64_t* parts);
/** The worker's samples of step `step` >= 1: (samples, context) ids in each array, row-major; the
 *  targets are the inputs one position later. `count`: length of each array, samples * context. */
isthmus_error* isthmus_batch(isthmus_session* session, int32_t worker, int64_t step,
                             int32_t* inputs, int32_t* targets, size_t count);
/** Part `part` of an evaluation, from 0: (*sequences, context) ids in each array. `count`:
 *  length of each array; 8 * context suffices for every part. */
isthmus_error* isthmus_validation(isthmus_session* session, int32_t worker, int64_t part,
                                  int32_t* inputs, int32_t* targets, size_t count,
                                  int64_t* sequences);
/** The same two for data.pack = "documents", which the two above refuse: `positions` holds each
 *  token's position in its document (0 at its first token), and a token attends only to its own
 *  document; -100 marks a missing target (after a document's last token). Without data.pack a
 *  window is one document. */
isthmus_error* isthmus_packed_batch(isthmus_session* session, int32_t worker, int64_t step,
                                    int32_t* inputs, int32_t* targets, int32_t* positions,
                                    size_t count);
isthmus_error* isthmus_packed_validation(isthmus_session* session, int32_t worker, int64_t part,
                                         int32_t* inputs, int32_t* targets, int32_t* positions,
                                         size_t count, int64_t* sequences);
/** The worker's thread cannot continue: the run fails with this text, and the other sites lose this
 *  site. */
isthmus_error* isthmus_session_fail(isthmus_session* session, int32_t worker, const char* text);
/** State other than the parameters, during ISTHMUS_SAVE or ISTHMUS_LOAD. `name` is unique. `put`
 *  copies `data`. `get` writes exactly `bytes` bytes, the entry's size: isthmus_state_bytes, -1 if
 *  there is no such entry. */
isthmus_error* isthmus_state_put(isthmus_session* session, int32_t worker, const char* name,
                                 const uint8_t* data, size_t bytes);
int64_t isthmus_state_bytes(isthmus_session* session, int32_t worker, const char* name);
isthmus_error* isthmus_state_get(isthmus_session* session, int32_t worker, const char* name,
                                 uint8_t* data, size_t bytes);
/** Requests to the run, from any thread. 1: stop with a checkpoint (exit code 130); 2: the same
 * with 85, after which a scheduler starts the run again; 3: a checkpoint; 4: this site leaves the
 * run. */
isthmus_error* isthmus_session_wish(isthmus_session* session, int32_t wish);
/** For tests of faults: kills this process, as by kill -9, when a run reaches a point:
 *  "kill@commits:2" (src/core/base/fault_point.h lists the points). Once in a process. */
isthmus_error* isthmus_kill_at(const char* fault);
/** After ISTHMUS_END: {exit_code, status, directory, steps, clock_s} as JSON. */
isthmus_error* isthmus_session_end(const isthmus_session* session, char** json);
/** Ends what still runs, as a lost site, and frees. Blocks for a few seconds at most. RETURNS: 1;
 * or 0 where the run still waits for sites that are gone: the session and its threads then stay
 * until the process ends, and so must the parameters' memory. No thread may be in another function
 * of the session. NULL does nothing. */
int32_t isthmus_session_free(isthmus_session* session);

#ifdef __cplusplus
}
#endif

#endif
