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
 *           thread at a time. Only isthmus_next and isthmus_session_free wait for other sites;
 *           isthmus_outer_values may wait for the run's own thread.
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
/** What the program would exit with: 1 run, 2 usage, 3 config, 4 environment, 5 peer. */
int32_t isthmus_error_exit_code(const isthmus_error* error);
/** JSON array of {code, where, line, column, message, hint, source_line}; "[]" where there are
 * none. Only errors of configurations have diagnostics. */
const char* isthmus_error_diagnostics(const isthmus_error* error);
/** NULL does nothing. */
void isthmus_error_free(isthmus_error* error);

/* ---- the log ----
 *
 * One log for the process, on stderr until somebody takes it over. Any thread.
 */

/** 1: lines are kept for isthmus_log_take, the last 4096 of them; 0: they go to stderr again. */
void isthmus_log_keep(int32_t keep);
/** Lines that are kept now. */
int64_t isthmus_log_waiting(void);
/** Hands out the kept lines: JSON array of {level, text}, oldest first; level is "debug", "info",
 *  "warning" or "error". Where some have been lost since the last call, the first tells how many.
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

/** Reads and checks the configuration at `path`, lays `count` overrides ("outer.H=50") over it, and
 *  writes every value in effect as one JSON object of sections. Relative paths come out absolute.
 *  Errors: kind "config" with all diagnostics; "environment" when the file cannot be read. */
isthmus_error* isthmus_config_load(const char* path, const char* const* overrides, size_t count,
                                   char** json);
/** A TOML text as JSON, unchecked: a run folder's config.resolved.toml, whose data may be elsewhere
 *  by now. `name` stands for the file in errors. */
isthmus_error* isthmus_toml_to_json(const char* toml, const char* name, char** json);

/* ---- codecs: the bytes form of float vectors (docs/internals/codecs.md, isthmus/codec.h) ---- */

typedef struct isthmus_codec isthmus_codec;

/** What the random bits of an encoding are drawn from. Codecs that round to nearest ignore it. */
typedef struct isthmus_encode_key {
  size_t size;     /* sizeof(isthmus_encode_key) */
  uint64_t seed;   /* the round: equal on all workers */
  uint64_t tile;   /* number of the first tile of 4096 values in its vector */
  uint32_t worker; /* whose values these are, < 2^22 */
} isthmus_encode_key;

/** Makes a codec from its spelling: "int8", "int4:64", "topk:0.01:ef". Errors: kind "config" that
 *  says what is allowed. */
isthmus_error* isthmus_codec_new(const char* spelling, isthmus_codec** codec);
/** NULL does nothing. */
void isthmus_codec_free(isthmus_codec* codec);
/** The canonical spelling, which isthmus_codec_new accepts. */
const char* isthmus_codec_name(const isthmus_codec* codec);
/** 1 where every value survives bit for bit. */
int32_t isthmus_codec_lossless(const isthmus_codec* codec);
/** 1 where codes sum badly once re-encoded (top-k): their exchange is a gather. */
int32_t isthmus_codec_sparse(const isthmus_codec* codec);
/** 1 where the spelling asks for error feedback (":ef"), which the sender keeps, not the codec. */
int32_t isthmus_codec_error_feedback(const isthmus_codec* codec);
/** Exact number of bytes of `values` encoded values. */
size_t isthmus_codec_bytes(const isthmus_codec* codec, size_t values);
/** Encodes `count` values into exactly isthmus_codec_bytes(codec, count) bytes at `out`. `key` may
 *  be NULL: all zero. The bytes are a function of (values, key) on every machine. */
isthmus_error* isthmus_codec_encode(const isthmus_codec* codec, const float* values, size_t count,
                                    const isthmus_encode_key* key, uint8_t* out, size_t out_bytes);
/** Decodes into `count` values at `out`. Errors: kind "run" for bytes that are no encoding of so
 *  many values; `out` is then unspecified. */
isthmus_error* isthmus_codec_decode(const isthmus_codec* codec, const uint8_t* bytes, size_t size,
                                    float* out, size_t count);
/** sum[i] += decoded[i], one rounded addition each. Errors: as isthmus_codec_decode. */
isthmus_error* isthmus_codec_decode_add(const isthmus_codec* codec, const uint8_t* bytes,
                                        size_t size, float* sum, size_t count);

/* ---- runs: the outer loop around a trainer of the caller's ----
 *
 * The run goes on native threads; the caller's threads pull what it asks of each worker, do it, and
 * answer. No function is called back. One thread at a time serves one worker.
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
  const char* site;     /* which [[site]] this process is; NULL: all workers are here */
  const char* listen;   /* HOST:PORT that the site binds; NULL: the port of its address */
  const char* key_file; /* secret key; NULL: keys/SITE.key beside the file */
  const char* out;      /* folder of the run; NULL: run.out, or a new one in runs/ */
  const char* resume;   /* "never", "auto", or a checkpoint's path; NULL: "never" */
  const char*
      link; /* "100Mbit/s,80ms" between all sites, in place of the file's; NULL: the file's */
  const char* kind;         /* which trainer this is, "numpy": sites of one kind compare `common` */
  const char* common;       /* JSON object of texts: values that steer the training; NULL: none */
  int64_t evaluation_parts; /* parts of a whole evaluation; 0: the run evaluates nothing; -1: as
                               many as isthmus_samples says, part k being isthmus_validation's */
  int32_t simulated;        /* 1: in virtual time over the links; the clock needs sim.step_time */
  int32_t force;            /* 1: a run that is in `out` is removed */
  const char* const* addresses; /* "west=10.0.0.2:48200": in place of the file's */
  size_t address_count;
  const char* links; /* path of measured links, in place of the file's [[link]]; NULL: the file's */
  const char* const* changes; /* "train.steps=400": with `resume`, changes a key of the run from
                                 here on; the run's manifest tells it */
  size_t change_count;
} isthmus_session_options;

/** One tensor of a worker's model. Name and shape are copied. */
typedef struct isthmus_parameter {
  size_t size;          /* sizeof(isthmus_parameter) */
  const char* name;     /* unique */
  const int64_t* shape; /* `dimensions` of them; 0 dimensions: one value */
  size_t dimensions;
  float* values; /* C order, float32; the caller's, read and written while a request is out or none
                    is; stays there until isthmus_session_free returns 1 */
  int32_t layer; /* 0 .. L-1 with L <= 1000000, or -1: of no layer */
  float* gradient; /* as `values`, of a run whose outer.method is ddp; else NULL */
} isthmus_parameter;

/** What a run asks of a worker. */
enum {
  ISTHMUS_NOTHING = 0, /* the timeout has passed */
  ISTHMUS_TRAIN = 1,   /* take inner step `step`; answer with its loss */
  ISTHMUS_SAVE = 2,    /* write what is beside the parameters with isthmus_state_put, then answer */
  ISTHMUS_LOAD = 3,    /* read it back with isthmus_state_get, then answer */
  ISTHMUS_RESTART = 4, /* the run begins anew: forget what the optimizer holds; parameters follow */
  ISTHMUS_EVALUATE = 5, /* losses of the parameters as they stand, for parts[0 .. count) */
  ISTHMUS_END = 6,      /* the run is over: isthmus_session_end tells how. No answer */
  /* Of workers whose `values` are copies (isthmus_session_copies), about the elements [first, end)
     of all parameters laid end to end: */
  ISTHMUS_READ = 7,  /* write them to `values`, where they stay right until the next step */
  ISTHMUS_WROTE = 8, /* the run has written them in `values`: take them over */
  /* Under outer.method = "ddp", in the place of ISTHMUS_TRAIN: */
  ISTHMUS_GRADIENTS = 9, /* forward and backward pass of inner step `step`: write the gradients to
                            `gradient`, and answer with the loss */
  ISTHMUS_APPLY =
      10,             /* `gradient` holds their mean over all sites: take the optimizer's step, and
                         answer with its grad_norm and learning_rate. Does not follow where a site
                         is lost meanwhile: the run then loads former state, and goes on from there */
  ISTHMUS_REPLAY = 11 /* as ISTHMUS_APPLY, of a step that the other sites have taken while this one
                         was away: no gradients of its own are asked for */
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
  int64_t until; /* of ISTHMUS_TRAIN: every isthmus_next gives the step after the one that was
                    answered, at once, up to step `until` >= step. Nothing else is asked before. */
} isthmus_request;

/** What a worker says of a step (ISTHMUS_TRAIN, ISTHMUS_GRADIENTS, ISTHMUS_APPLY, ISTHMUS_REPLAY).
 *  A loss or gradient norm that is not finite fails the run, which has diverged, unless the step is
 *  skipped. */
typedef struct isthmus_step {
  size_t size;      /* sizeof(isthmus_step) */
  double loss;      /* mean over this worker's targets, before the update */
  double grad_norm; /* before clipping; 0: not known */
  int64_t tokens;   /* targets in the mean; they weigh the worker's contribution, but under ddp */
  double learning_rate;
  int32_t skipped; /* 1: the step changed nothing (a gradient scaler saw an overflow) */
} isthmus_step;

/** Reads and checks the configuration. Writes nothing and opens no socket. */
isthmus_error* isthmus_session_new(const isthmus_session_options* options,
                                   isthmus_session** session);
/** Every value of the configuration in effect, as JSON. Belongs to the session. */
const char* isthmus_session_config(const isthmus_session* session);
/** Workers of the whole run; how many of them this process has, and the number of the first. */
int32_t isthmus_session_workers(const isthmus_session* session);
int32_t isthmus_session_local(const isthmus_session* session);
int32_t isthmus_session_first(const isthmus_session* session);
/** Inner steps of the run. */
int64_t isthmus_session_steps(const isthmus_session* session);
/** The parameters of a worker of this process, all in one order at every worker and site; they hold
 *  the initial values. Before isthmus_session_start, once for each worker. */
isthmus_error* isthmus_session_worker(isthmus_session* session, int32_t worker,
                                      const isthmus_parameter* parameters, size_t count);
/** The worker's parameters live elsewhere, on a device or in another type, and `values` are copies:
 *  the run asks ISTHMUS_READ before it reads them and ISTHMUS_WROTE after it has written them.
 * While ISTHMUS_EVALUATE is out they hold what is evaluated. Before isthmus_session_start. */
isthmus_error* isthmus_session_copies(isthmus_session* session, int32_t worker);
/** Begins the run on threads of the library, and returns at once. */
isthmus_error* isthmus_session_start(isthmus_session* session);
/** Waits for the worker's next request, for at most `timeout_ns`. Errors: the run has failed; every
 *  worker that asks is told. */
isthmus_error* isthmus_next(isthmus_session* session, int32_t worker, int64_t timeout_ns,
                            isthmus_request* request);
/** Answers the worker's request. `step`: of the requests for a step, else NULL. */
isthmus_error* isthmus_answer(isthmus_session* session, int32_t worker, const isthmus_step* step);
/** Answers ISTHMUS_EVALUATE: sum of losses and number of targets of each part, in order. */
isthmus_error* isthmus_answer_losses(isthmus_session* session, int32_t worker,
                                     const double* loss_sums, const int64_t* tokens, size_t count);
/** Writes the outer parameters of parameter number `parameter`, its `count` values, while
 *  ISTHMUS_TRAIN is out; after ISTHMUS_END those of the run's last checkpoint, which the first such
 *  call of a worker reads. The worker's own parameters stay as they are. Errors: kind "run" at a
 *  step that the site takes while it is cut off, or takes again, when there are none, and where the
 *  last checkpoint is not of the last step; "environment" where it cannot be read. */
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
 *  targets are the inputs one position later. `count`: of each array, samples * context. */
isthmus_error* isthmus_batch(isthmus_session* session, int32_t worker, int64_t step,
                             int32_t* inputs, int32_t* targets, size_t count);
/** Part `part` of an evaluation, from 0: (*sequences, context) ids in each array. `count`: what
 * each array holds; 8 * context is enough for every part. */
isthmus_error* isthmus_validation(isthmus_session* session, int32_t worker, int64_t part,
                                  int32_t* inputs, int32_t* targets, size_t count,
                                  int64_t* sequences);
/** The same two of a file with data.pack = "documents", which the two above refuse: `positions`
 *  holds each token's position in its document, 0 where one begins, and tokens attend to those of
 *  their own document alone; a target of -100 is none (the last token of a document). Of a file
 *  without data.pack a window is one document. */
isthmus_error* isthmus_packed_batch(isthmus_session* session, int32_t worker, int64_t step,
                                    int32_t* inputs, int32_t* targets, int32_t* positions,
                                    size_t count);
isthmus_error* isthmus_packed_validation(isthmus_session* session, int32_t worker, int64_t part,
                                         int32_t* inputs, int32_t* targets, int32_t* positions,
                                         size_t count, int64_t* sequences);
/** The worker's thread cannot go on: the run fails with this text, and other sites lose this one.
 */
isthmus_error* isthmus_session_fail(isthmus_session* session, int32_t worker, const char* text);
/** State beside the parameters, while ISTHMUS_SAVE or ISTHMUS_LOAD is out. `name` is unique. `put`
 *  copies. `get` writes exactly `bytes` bytes; isthmus_state_bytes tells how many there are, -1: no
 *  such entry. */
isthmus_error* isthmus_state_put(isthmus_session* session, int32_t worker, const char* name,
                                 const uint8_t* data, size_t bytes);
int64_t isthmus_state_bytes(isthmus_session* session, int32_t worker, const char* name);
isthmus_error* isthmus_state_get(isthmus_session* session, int32_t worker, const char* name,
                                 uint8_t* data, size_t bytes);
/** Wishes; any thread. 1: stop with a checkpoint (exit code 130); 2: the same with 85, by which a
 *  scheduler starts the run again; 3: a checkpoint; 4: this site leaves the run. */
isthmus_error* isthmus_session_wish(isthmus_session* session, int32_t wish);
/** For tests of faults: this process is killed, as by kill -9, where a run reaches a moment:
 *  "kill@commits:2" (src/core/base/fault_point.h lists them). Once in a process. */
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
