// SPDX-License-Identifier: Apache-2.0
#include "app/common/error_catalog.h"

namespace isthmus::app {
namespace {

constexpr ErrorEntry kErrors[] = {
    {"E-TOML", "The file is not TOML: a quote, bracket or value is malformed at that place.",
     "Correct the syntax there. Text needs double quotes, sections single brackets."},
    {"E-ENCODING", "The file is not UTF-8 text.", "Save it as UTF-8."},
    {"E-EMPTY", "The file holds nothing.", "`isthmus init` writes a commented one."},
    {"E-KEY-UNKNOWN", "No key or section of that name.",
     "Take the suggested name, or see `isthmus explain SECTION`. Keys are never ignored in "
     "silence: a "
     "misspelt one would leave its default in force."},
    {"E-KEY-TWICE", "One key is given twice.", "Remove one of them."},
    {"E-KEY-UNUSED",
     "The key exists, but what was chosen elsewhere in the file (method, optimizer, schedule, "
     "architecture) does not use it.",
     "Remove it, or choose what uses it. `isthmus explain KEY` says what that is."},
    {"E-KEY-MISSING", "A key that has no default is not given.", "Add it; the hint shows a form."},
    {"E-TYPE", "The value is of another kind: text for a number, one value for an array.",
     "Write it as the message says. Numbers with a unit are quoted, plain numbers are not."},
    {"E-RANGE", "The number lies outside its bounds, or is not finite.",
     "Choose one inside the range that the message names."},
    {"E-VALUE", "The text is none of the values that the key takes.",
     "Take one of those listed; a suggestion is given where one is near."},
    {"E-UNIT-MISSING", "A number with a dimension stands without its unit.",
     "Add it: \"100Mbit/s\" or \"100MiB/s\", \"80ms\", \"16k tok\". Bits and bytes are never "
     "guessed."},
    {"E-UNIT-WRONG", "The unit does not belong to this quantity, or is spelt otherwise.",
     "k M G T are powers of 1000, Ki Mi Gi Ti of 1024; minutes are min. Rates: bits are bit/s, "
     "also "
     "bits/s, bit, bps and b/s (100Mbps, 1Gbit, 100mbit, 94 Mbits/sec); bytes are B/s, also Bps "
     "and "
     "Bytes/s. Refused, since they mean bits to some and bytes to others: 100M, 10Gb, 100mbps, "
     "100mb/s; and 64KB/s, of 1000 or 1024."},
    {"E-DIVISIBLE", "Two sizes do not divide as they must.",
     "Take the nearest working value that the message names."},
    {"E-CONFLICT", "Two keys exclude one another.", "Remove one of them."},
    {"E-SET", "A --set is not of the form key=value, or names what cannot be set.",
     "Write --set section.key=value; the value is TOML, bare words are text."},
    {"E-FILE", "A file or folder that the configuration names cannot be used.",
     "The message names it and the cause; relative paths start at the configuration's folder."},
    {"E-COMPARISON",
     "The file describes a comparison, with [compare] and [variant.NAME], where a run was asked "
     "for; or the other way round.",
     "`isthmus compare FILE` takes comparisons, `train` and `simulate` take runs."},
    {"E-NOT-YET", "The name is known, but this version does not have what it asks for.",
     "Remove it; `isthmus methods` and `isthmus explain SECTION` list what there is."},
};

constexpr ExitEntry kExits[] = {
    {0, "done"},
    {1, "the run failed: it diverged, or its state is inconsistent"},
    {2, "usage: an unknown command or flag"},
    {3, "configuration: a key, value or size that cannot be used"},
    {4, "environment: a file, device, disk or memory that refuses"},
    {5, "a peer or link is gone or disagrees"},
    {6, "the target was missed"},
    {85,
     "checkpointed on SIGTERM or SIGUSR1, or left a run on SIGUSR2: please requeue, with --resume"},
    {130, "interrupted (Ctrl+C) after a checkpoint; --resume goes on"},
};

}  // namespace

std::span<const ErrorEntry> error_catalog() { return kErrors; }
std::span<const ExitEntry> exit_codes() { return kExits; }

}  // namespace isthmus::app
