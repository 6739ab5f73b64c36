// A searcher: random values first, then the best trial with one of its parameters changed. Each parameter has a list of values.
#define ASSAY_SEARCHER
#include "assay_plugin.h"

#define MOST_PARAMETERS 32
#define MOST_TEXT 4096

// The texts of the space and of the best parameters lie in `text`, one after the other.
typedef struct {
    u64 random, rounds, left;
    double best;
    u32 has_best, space, params;
    char text[2 * MOST_TEXT];
} State;

// A parameter of the space: its name, and the text of its list without brackets.
typedef struct { String name, values; u32 count; } Parameter;

About describe(void) {
    return (About){string("climb"), string("1.0.0"), string("Changes one parameter of the best trial at a time."),
                   string("{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{"
                          "\"rounds\":{\"type\":\"integer\",\"minimum\":1,\"default\":3}}}")};
}

static u32 draw(State *state, u32 bound) {
    // Knuth's MMIX generator.
    state->random = state->random * 6364136223846793005u + 1442695040888963407u;
    return (u32)((state->random >> 33) % bound);
}

// The end of the JSON value that begins at `at`: the place of the comma or bracket after it.
static u32 value_end(String text, u32 at) {
    u32 depth = 0, in_string = 0;
    for (; at < text.length; at++) {
        char c = text.text[at];
        if (in_string) {
            if (c == '\\') at++;
            else if (c == '"') in_string = 0;
        } else if (c == '"') in_string = 1;
        else if (c == '[' || c == '{') depth++;
        else if ((c == ']' || c == '}' || c == ',') && !depth) return at;
        else if (c == ']' || c == '}') depth--;
    }
    return at;
}

// The parameters of a space such as {"states":[8,16]}; 0 if it has another form.
static u32 read_space(String space, Parameter *all) {
    u32 count = 0, at = 1;
    while (at < space.length && space.text[at] == '"' && count < MOST_PARAMETERS) {
        u32 end = at + 1;
        while (end < space.length && space.text[end] != '"') end += space.text[end] == '\\' ? 2 : 1;
        if (end + 2 >= space.length || space.text[end + 1] != ':' || space.text[end + 2] != '[') return 0;
        u32 close = value_end(space, end + 3), values = 0, place = end + 3;
        while (close < space.length && space.text[close] == ',') close = value_end(space, close + 1);
        for (; place < close; place = value_end(space, place) + 1) values++;
        if (!values) return 0;
        all[count++] = (Parameter){{space.text + at, end + 1 - at}, {space.text + end + 3, close - end - 3}, values};
        at = close + 1;
        if (at < space.length && space.text[at] == ',') at++;
    }
    return count;
}

static String value_of(Parameter parameter, u32 index) {
    u32 at = 0;
    while (index--) at = value_end(parameter.values, at) + 1;
    return (String){parameter.values.text + at, value_end(parameter.values, at) - at};
}

static Bytes state_bytes(State state) {
    Bytes bytes = {allocate(sizeof state), sizeof state};
    __builtin_memcpy(bytes.items, &state, sizeof state);
    return bytes;
}

OpenResult open(String config, String space, u64 seed) {
    Parameter all[MOST_PARAMETERS];
    double rounds = option(config, "rounds", 3);
    if (!(rounds >= 1 && rounds < 1e6)) fail("rounds is less than 1", 0, "/rounds");
    if (space.length > MOST_TEXT || !read_space(space, all))
        fail("the space is not a list of values for each parameter", "write {\"states\": [8, 16]}", 0);
    State state = {.random = seed, .left = (u64)rounds, .space = space.length};
    __builtin_memcpy(state.text, space.text, space.length);
    return (OpenResult){.state = state_bytes(state)};
}

// The text of the value of a parameter in the best trial.
static String best_value(State *state, Parameter parameter) {
    String best = {state->text + MOST_TEXT, state->params};
    for (u32 at = 1; at + parameter.name.length < best.length; at = value_end(best, at) + 1) {
        u32 same = 0;
        while (same < parameter.name.length && best.text[at + same] == parameter.name.text[same]) same++;
        if (same < parameter.name.length) continue;
        u32 start = at + same + 1;
        return (String){best.text + start, value_end(best, start) - start};
    }
    return value_of(parameter, 0);
}

ProposeResult propose(Bytes saved, Trial *results, u32 result_count, u32 count) {
    static State state;
    if (saved.length != sizeof state)
        return (ProposeResult){.is_problem = 1, .problem = problem("the state was not made by this plugin", 0, 0)};
    __builtin_memcpy(&state, saved.items, sizeof state);
    for (u32 at = 0; at < result_count; at++) {
        if (!results[at].has_value || results[at].params.length > MOST_TEXT) continue;
        if (state.has_best && results[at].value >= state.best) continue;
        state.has_best = 1, state.best = results[at].value, state.params = results[at].params.length;
        __builtin_memcpy(state.text + MOST_TEXT, results[at].params.text, state.params);
    }
    Parameter all[MOST_PARAMETERS];
    u32 parameters = read_space((String){state.text, state.space}, all);
    String *params = allocate(count * sizeof *params);
    for (u32 trial = 0; trial < count; trial++) {
        Text text = {0};
        u32 changed = draw(&state, parameters);
        for (u32 at = 0; at < parameters; at++) {
            append_text(&text, at ? "," : "{"), append(&text, all[at].name.text, all[at].name.length), append_text(&text, ":");
            u32 keep = state.has_best && at != changed;
            String value = keep ? best_value(&state, all[at]) : value_of(all[at], draw(&state, all[at].count));
            append(&text, value.text, value.length);
        }
        append_text(&text, "}");
        params[trial] = finished(text);
    }
    state.left = state.left ? state.left - 1 : 0;
    return (ProposeResult){.state = state_bytes(state), .params = params, .count = count, .finished = !state.left};
}
