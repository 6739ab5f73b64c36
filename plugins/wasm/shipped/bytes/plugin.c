// A step that counts the bytes of its input `data`: the output `counts` has a line `BYTE,COUNT` for each byte that occurs.
#define ASSAY_STEP
#include "assay_plugin.h"

// How much is read at once.
#define PART 65536

About describe(void) {
    return (About){string("bytes"), string("1.0.0"), string("Counts the bytes of a file."),
                   string("{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{"
                          "\"limit\":{\"type\":\"integer\",\"minimum\":1}}}")};
}

RunResult run(String config, u32 replicate) {
    (void)replicate;
    static u64 counts[256];
    double limit = option(config, "limit", 1e18);
    if (!(limit >= 1)) fail("limit is less than 1", "leave it out to count all bytes", "/limit");
    SizeResult size = input_size("data");
    if (size.is_problem) fail_with(size.message);
    u64 total = size.bytes < limit ? size.bytes : (u64)limit;
    for (u64 at = 0; at < total; at += PART) {
        u32 mark = arena_used;
        ReadResult part = read_input("data", at, total - at < PART ? (u32)(total - at) : PART);
        if (part.is_problem) fail_with(part.message);
        for (u32 index = 0; index < part.bytes.length; index++) counts[part.bytes.items[index]]++;
        arena_used = mark;
    }
    Text table = {0};
    u64 distinct = 0;
    for (u32 byte = 0; byte < 256; byte++) {
        if (!counts[byte]) continue;
        distinct++;
        append_number(&table, byte), append_text(&table, ","), append_number(&table, counts[byte]), append_text(&table, "\n");
    }
    WriteResult written = write_output("counts", table.text, table.length);
    if (written.is_problem) fail_with(written.message);
    written = report_metric(0, "distinct", (double)distinct);
    if (written.is_problem) fail_with(written.message);
    Text result = {0};
    append_text(&result, "{\"bytes\":"), append_number(&result, total), append_text(&result, "}");
    return (RunResult){.result = finished(result)};
}
