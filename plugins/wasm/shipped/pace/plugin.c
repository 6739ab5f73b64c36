// A curriculum that follows the loss: sequences get longer once the mean loss since the last stage is low enough.
#define ASSAY_CURRICULUM
#include "assay_plugin.h"

typedef struct { u64 every; double below, grow; u32 length, longest; } State;

About describe(void) {
    return (About){string("pace"), string("1.0.0"),
                   string("Begins with short sequences and admits longer ones whenever the mean loss of a stage is low enough."),
                   string("{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{"
                          "\"start\":{\"type\":\"integer\",\"minimum\":1,\"default\":16},"
                          "\"every\":{\"type\":\"integer\",\"minimum\":1,\"default\":50},"
                          "\"below\":{\"type\":\"number\",\"default\":1.0},"
                          "\"grow\":{\"type\":\"number\",\"exclusiveMinimum\":1,\"default\":2.0}}}")};
}

static Bytes state_bytes(State state) {
    Bytes bytes = {allocate(sizeof state), sizeof state};
    __builtin_memcpy(bytes.items, &state, sizeof state);
    return bytes;
}

OpenResult open(String config, u64 seed, Numbers lengths) {
    (void)seed;
    double start = option(config, "start", 16), every = option(config, "every", 50), grow = option(config, "grow", 2);
    if (!(start >= 1 && start < 4294967296.0)) fail("start is less than 1", 0, "/start");
    if (!(every >= 1 && every < 1e15)) fail("every is less than 1", 0, "/every");
    if (!(grow > 1)) fail("grow is not above 1", "2 doubles the length", "/grow");
    if (!lengths.length) fail("the training split is empty", 0, 0);
    State state = {(u64)every, option(config, "below", 1), grow, (u32)start, lengths.items[lengths.length - 1]};
    // At least the shortest sequence fits.
    if (state.length < lengths.items[0]) state.length = lengths.items[0];
    return (OpenResult){.state = state_bytes(state)};
}

// Whether a name ends with "loss", as `loss` and `train/loss` do.
static u32 is_loss(String name) {
    const char *last = name.text + name.length - 4;
    return name.length >= 4 && last[0] == 'l' && last[1] == 'o' && last[2] == 's' && last[3] == 's';
}

NextResult next(Bytes saved, u64 step, Seen *seen, u32 count) {
    State state;
    if (saved.length != sizeof state)
        return (NextResult){.is_problem = 1, .problem = problem("the state was not made by this plugin", 0, 0)};
    __builtin_memcpy(&state, saved.items, sizeof state);
    double sum = 0;
    u32 losses = 0;
    for (u32 at = 0; at < count; at++)
        for (u32 value = 0; value < seen[at].count; value++) {
            if (!is_loss(seen[at].values[value].name)) continue;
            sum += seen[at].values[value].value;
            losses++;
        }
    const char *note = "as before";
    if (losses && sum / losses < state.below && state.length < state.longest) {
        double longer = state.length * state.grow + 1;
        state.length = longer < state.longest ? (u32)longer : state.longest;
        note = "longer sequences";
    }
    return (NextResult){.stage = {step + state.every, state.length, string(note)}, .state = state_bytes(state)};
}
