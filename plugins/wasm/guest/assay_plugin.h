// Plugins of Assay in C, without a C library: include this file in the one source file of a plugin.
//
//   #define ASSAY_DATASET      // or ASSAY_METRIC, ASSAY_CURRICULUM, ASSAY_STEP, ASSAY_SEARCHER
//   #include "assay_plugin.h"
//
// Then define the functions that are declared below for that world, and `describe`. Memory comes from `allocate` and is
// freed after each call; what must last from call to call belongs into static variables. A long call frees memory with
// `u32 mark = arena_used; ..; arena_used = mark;`.
//
// `open` reports a config that it cannot serve with `fail(message, hint, at)`. The structs have the layouts of the canonical ABI.
#ifndef ASSAY_PLUGIN_H
#define ASSAY_PLUGIN_H

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

typedef struct { const char *text; u32 length; } String;
typedef struct { u8 *items; u32 length; } Bytes;
typedef struct { u32 *items; u32 length; } Numbers;
typedef struct { float *items; u32 length; } Floats;
typedef struct { String name, version, description, config_schema; } About;
typedef struct { String name; double value; } Value;
typedef struct { u32 is_some; String text; } OptionalString;
typedef struct { String message; OptionalString hint, at, trace; } Problem;

#define EXPORT(interface, function) __attribute__((export_name("assay:plugin/" interface "@0.1.0#" function)))
#define IMPORT(interface, function) \
    __attribute__((import_module("assay:plugin/" interface "@0.1.0"), import_name(function)))
#define AFTER(interface, function) __attribute__((export_name("cabi_post_assay:plugin/" interface "@0.1.0#" function)))

// ---- memory: one arena, which is empty again after each call ----

extern u8 __heap_base;
static u32 arena_used;

static void *allocate(u32 bytes) {
    u32 base = ((u32)&__heap_base + 15) & ~15u;
    u64 end = (u64)base + arena_used + bytes + 15;
    u64 size = (u64)__builtin_wasm_memory_size(0) << 16;
    if (end > size && __builtin_wasm_memory_grow(0, (u32)((end - size + 65535) >> 16)) == (u32)-1) __builtin_trap();
    void *place = (void *)(base + arena_used);
    arena_used += (bytes + 15) & ~15u;
    return place;
}

__attribute__((export_name("cabi_realloc"))) void *cabi_realloc(void *old, u32 old_bytes, u32 align, u32 bytes) {
    (void)align;
    void *place = allocate(bytes);
    if (old) __builtin_memcpy(place, old, old_bytes < bytes ? old_bytes : bytes);
    return place;
}

// ---- texts and configs ----

static u32 text_length(const char *text) {
    u32 length = 0;
    while (text[length]) length++;
    return length;
}

static String string(const char *text) { return (String){text, text_length(text)}; }

// The number behind "key": in a flat JSON object, or `otherwise` where there is none.
static double option(String config, const char *key, double otherwise) {
    u32 length = text_length(key);
    for (u32 at = 0; at + length + 2 < config.length; at++) {
        if (config.text[at] != '"' || config.text[at + length + 1] != '"') continue;
        u32 same = 0;
        while (same < length && config.text[at + 1 + same] == key[same]) same++;
        if (same < length) continue;
        u32 place = at + length + 2;
        while (place < config.length && (config.text[place] == ' ' || config.text[place] == ':')) place++;
        double sign = 1, value = 0, unit = 1;
        if (place < config.length && config.text[place] == '-') sign = -1, place++;
        int digits = 0, fraction = 0;
        for (; place < config.length; place++) {
            char c = config.text[place];
            if (c >= '0' && c <= '9') {
                value = value * 10 + (c - '0');
                digits = 1;
                if (fraction) unit *= 10;
            } else if (c == '.' && !fraction) fraction = 1;
            else break;
        }
        return digits ? sign * value / unit : otherwise;
    }
    return otherwise;
}

// A text for building longer ones: append to it with `append` and `append_number`.
typedef struct { char *text; u32 length, capacity; } Text;

static void append(Text *text, const char *bytes, u32 length) {
    if (text->length + length > text->capacity) {
        u32 capacity = 2 * (text->length + length);
        char *larger = allocate(capacity);
        if (text->length) __builtin_memcpy(larger, text->text, text->length);
        text->text = larger, text->capacity = capacity;
    }
    if (length) __builtin_memcpy(text->text + text->length, bytes, length);
    text->length += length;
}

static void append_text(Text *text, const char *more) { append(text, more, text_length(more)); }

static void append_number(Text *text, u64 number) {
    char digits[20];
    u32 count = 0;
    do digits[19 - count++] = (char)('0' + number % 10); while (number /= 10);
    append(text, digits + 20 - count, count);
}

static String finished(Text text) { return (String){text.text, text.length}; }

static Problem problem(const char *message, const char *hint, const char *at) {
    Problem problem = {.message = string(message)};
    if (hint) problem.hint = (OptionalString){1, string(hint)};
    if (at) problem.at = (OptionalString){1, string(at)};
    return problem;
}

About describe(void);
EXPORT("plugin", "describe") About *assay_describe(void) {
    About *about = allocate(sizeof *about);
    *about = describe();
    return about;
}
AFTER("plugin", "describe") void assay_describe_after(void *result) { (void)result, arena_used = 0; }

#ifdef ASSAY_DATASET
typedef struct { String *vocabulary; u32 symbols, classes, max_length; } Facts;
typedef struct { u32 is_problem; union { Facts facts; Problem problem; }; } OpenResult;
typedef struct { Numbers tokens, offsets, labels; } Sequences;
typedef struct { u32 is_problem; union { Sequences sequences; Problem problem; }; } BatchResult;

OpenResult open(String config);
BatchResult batch(u64 seed, u32 split, u64 first, u32 count);

EXPORT("dataset", "open") OpenResult *assay_open(const char *text, u32 length) {
    OpenResult *result = allocate(sizeof *result);
    *result = open((String){text, length});
    return result;
}
AFTER("dataset", "open") void assay_open_after(void *result) { (void)result, arena_used = 0; }
EXPORT("dataset", "batch") BatchResult *assay_batch(u64 seed, u32 split, u64 first, u32 count) {
    BatchResult *result = allocate(sizeof *result);
    *result = batch(seed, split, first, count);
    return result;
}
AFTER("dataset", "batch") void assay_batch_after(void *result) { (void)result, arena_used = 0; }
// Ends `open` with a problem: message, hint and JSON pointer, each of the last two may be 0.
#define fail(...) return ((OpenResult){.is_problem = 1, .problem = problem(__VA_ARGS__)})
#endif

#ifdef ASSAY_METRIC
typedef struct { Numbers inputs, offsets, targets; Floats scores; u32 classes; } Batch;
typedef struct { u32 is_problem; Problem problem; } Outcome;
typedef struct { u32 is_problem; union { struct { Value *values; u32 count; }; Problem problem; }; } ValuesResult;

Outcome open(String config);
Outcome add(Batch batch);
Bytes save(void);
Outcome merge(Bytes saved);
ValuesResult values(void);

static Outcome *assay_outcome(Outcome outcome) {
    Outcome *result = allocate(sizeof *result);
    *result = outcome;
    return result;
}
EXPORT("metric", "open") Outcome *assay_open(const char *text, u32 length) {
    return assay_outcome(open((String){text, length}));
}
AFTER("metric", "open") void assay_open_after(void *result) { (void)result, arena_used = 0; }
EXPORT("metric", "add") Outcome *assay_add(u32 *inputs, u32 input_count, u32 *offsets, u32 offset_count, u32 *targets,
                                           u32 target_count, float *scores, u32 score_count, u32 classes) {
    return assay_outcome(add((Batch){{inputs, input_count}, {offsets, offset_count}, {targets, target_count},
                                     {scores, score_count}, classes}));
}
AFTER("metric", "add") void assay_add_after(void *result) { (void)result, arena_used = 0; }
EXPORT("metric", "save") Bytes *assay_save(void) {
    Bytes *result = allocate(sizeof *result);
    *result = save();
    return result;
}
AFTER("metric", "save") void assay_save_after(void *result) { (void)result, arena_used = 0; }
EXPORT("metric", "merge") Outcome *assay_merge(u8 *saved, u32 length) { return assay_outcome(merge((Bytes){saved, length})); }
AFTER("metric", "merge") void assay_merge_after(void *result) { (void)result, arena_used = 0; }
EXPORT("metric", "values") ValuesResult *assay_values(void) {
    ValuesResult *result = allocate(sizeof *result);
    *result = values();
    return result;
}
AFTER("metric", "values") void assay_values_after(void *result) { (void)result, arena_used = 0; }
#define fail(...) return ((Outcome){1, problem(__VA_ARGS__)})
#endif

#ifdef ASSAY_CURRICULUM
typedef struct { u64 step; Value *values; u32 count; } Seen;
typedef struct { u64 until_step; u32 max_length; String note; } Stage;
typedef struct { u32 is_problem; union { Bytes state; Problem problem; }; } OpenResult;
typedef struct { u64 is_problem; union { struct { Stage stage; Bytes state; }; Problem problem; }; } NextResult;

OpenResult open(String config, u64 seed, Numbers lengths);
NextResult next(Bytes state, u64 step, Seen *seen, u32 count);

EXPORT("curriculum", "open") OpenResult *assay_open(const char *text, u32 length, u64 seed, u32 *lengths, u32 count) {
    OpenResult *result = allocate(sizeof *result);
    *result = open((String){text, length}, seed, (Numbers){lengths, count});
    return result;
}
AFTER("curriculum", "open") void assay_open_after(void *result) { (void)result, arena_used = 0; }
EXPORT("curriculum", "next") NextResult *assay_next(u8 *state, u32 length, u64 step, Seen *seen, u32 count) {
    NextResult *result = allocate(sizeof *result);
    *result = next((Bytes){state, length}, step, seen, count);
    return result;
}
AFTER("curriculum", "next") void assay_next_after(void *result) { (void)result, arena_used = 0; }
#define fail(...) return ((OpenResult){.is_problem = 1, .problem = problem(__VA_ARGS__)})
#endif

#ifdef ASSAY_STEP
typedef struct { u32 is_problem; union { String result; Problem problem; }; } RunResult;

RunResult run(String config, u32 replicate);

EXPORT("step", "run") RunResult *assay_run(const char *text, u32 length, u32 replicate) {
    RunResult *result = allocate(sizeof *result);
    *result = run((String){text, length}, replicate);
    return result;
}
AFTER("step", "run") void assay_run_after(void *result) { (void)result, arena_used = 0; }
#define fail(...) return ((RunResult){.is_problem = 1, .problem = problem(__VA_ARGS__)})

// ---- files and metrics; `message` says why a call failed ----

typedef struct { u64 is_problem; union { u64 bytes; String message; }; } SizeResult;
typedef struct { u32 is_problem; union { Bytes bytes; String message; }; } ReadResult;
typedef struct { u32 is_problem; String message; } WriteResult;

IMPORT("artifacts", "size") void assay_size(const char *input, u32 length, SizeResult *result);
IMPORT("artifacts", "read") void assay_read(const char *input, u32 length, u64 at, u32 count, ReadResult *result);
IMPORT("artifacts", "write") void assay_write(const char *output, u32 length, const void *bytes, u32 count, WriteResult *result);
IMPORT("artifacts", "metrics") void assay_metrics(u64 step, const Value *values, u32 count, WriteResult *result);

static inline SizeResult input_size(const char *input) {
    SizeResult result = {0};
    assay_size(input, text_length(input), &result);
    return result;
}
static inline ReadResult read_input(const char *input, u64 at, u32 count) {
    ReadResult result = {0};
    assay_read(input, text_length(input), at, count, &result);
    return result;
}
static inline WriteResult write_output(const char *output, const void *bytes, u32 count) {
    WriteResult result = {0};
    assay_write(output, text_length(output), bytes, count, &result);
    return result;
}
static inline WriteResult report_metric(u64 step, const char *name, double value) {
    Value one = {string(name), value};
    WriteResult result = {0};
    assay_metrics(step, &one, 1, &result);
    return result;
}
// Ends `run` with the message of a failed call.
#define fail_with(text) return ((RunResult){.is_problem = 1, .problem = {.message = (text)}})
#endif

#ifdef ASSAY_SEARCHER
typedef struct { String params; u8 has_value; double value; } Trial;
typedef struct { u32 is_problem; union { Bytes state; Problem problem; }; } OpenResult;
typedef struct {
    u32 is_problem;
    union { struct { Bytes state; String *params; u32 count; u8 finished; }; Problem problem; };
} ProposeResult;

OpenResult open(String config, String space, u64 seed);
ProposeResult propose(Bytes state, Trial *results, u32 result_count, u32 count);

EXPORT("searcher", "open") OpenResult *assay_open(const char *config, u32 config_length, const char *space, u32 space_length,
                                                  u64 seed) {
    OpenResult *result = allocate(sizeof *result);
    *result = open((String){config, config_length}, (String){space, space_length}, seed);
    return result;
}
AFTER("searcher", "open") void assay_open_after(void *result) { (void)result, arena_used = 0; }
EXPORT("searcher", "propose") ProposeResult *assay_propose(u8 *state, u32 length, Trial *results, u32 result_count, u32 count) {
    ProposeResult *result = allocate(sizeof *result);
    *result = propose((Bytes){state, length}, results, result_count, count);
    return result;
}
AFTER("searcher", "propose") void assay_propose_after(void *result) { (void)result, arena_used = 0; }
#define fail(...) return ((OpenResult){.is_problem = 1, .problem = problem(__VA_ARGS__)})
#endif

#endif
