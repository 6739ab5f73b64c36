// The expected calibration error (Naeini et al. 2015; Guo et al. 2017): how far the confidence of predictions is from their accuracy.
//
// The confidence c of a prediction is the largest softmax probability. Predictions fall into bins of equal width by c;
//
//   ece = sum_b n_b / n * |accuracy_b - confidence_b|        mce = max_b |accuracy_b - confidence_b|
//
// Sums are integers (confidences in units of 2^-32), so that they do not depend on the order of the batches.
#define ASSAY_METRIC
#include "assay_plugin.h"

typedef struct { u64 count, right, confidence; } Bin;
static Bin bins[100];
static u32 bin_count;

About describe(void) {
    return (About){string("calibration"), string("1.0.0"),
                   string("Expected and maximum calibration error, mean confidence and accuracy of predictions."),
                   string("{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{"
                          "\"bins\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":100,\"default\":15}}}")};
}

Outcome open(String config) {
    double wanted = option(config, "bins", 15);
    if (!(wanted >= 1 && wanted <= 100)) fail("bins is outside 1..=100", "15 are usual", "/bins");
    bin_count = (u32)wanted;
    return (Outcome){0};
}

// exp(x) for x <= 0: 2^k times the Taylor polynomial of degree 13 on [-ln 2 / 2, ln 2 / 2].
static double exponential(double x) {
    if (!(x > -700)) return 0;
    long long k = (long long)(x * 1.4426950408889634 - 0.5);
    double r = x - (double)k * 0.6931471805599453, sum = 1;
    for (int n = 13; n > 0; n--) sum = 1 + sum * r / n;
    union { u64 bits; double value; } power = {.bits = (u64)(1023 + k) << 52};
    return sum * power.value;
}

Outcome add(Batch batch) {
    for (u32 at = 0; at < batch.targets.length; at++) {
        float *scores = batch.scores.items + (u64)at * batch.classes;
        u32 best = 0;
        for (u32 class = 1; class < batch.classes; class++) if (scores[class] > scores[best]) best = class;
        double sum = 0;
        for (u32 class = 0; class < batch.classes; class++) sum += exponential((double)scores[class] - scores[best]);
        // A score that is not a number makes the sum less than one.
        double confidence = sum >= 1 ? 1 / sum : 0;
        u32 bin = (u32)(confidence * bin_count);
        Bin *place = &bins[bin < bin_count ? bin : bin_count - 1];
        place->count++;
        place->right += best == batch.targets.items[at];
        place->confidence += (u64)(confidence * 4294967296.0);
    }
    return (Outcome){0};
}

Bytes save(void) { return (Bytes){(u8 *)bins, bin_count * sizeof(Bin)}; }

Outcome merge(Bytes saved) {
    if (saved.length != bin_count * sizeof(Bin)) fail("the saved state has another number of bins", 0, 0);
    for (u32 bin = 0; bin < bin_count; bin++) {
        Bin other;
        __builtin_memcpy(&other, saved.items + bin * sizeof(Bin), sizeof(Bin));
        bins[bin].count += other.count;
        bins[bin].right += other.right;
        bins[bin].confidence += other.confidence;
    }
    return (Outcome){0};
}

ValuesResult values(void) {
    u64 count = 0, right = 0, confidence = 0;
    double expected = 0, largest = 0;
    for (u32 bin = 0; bin < bin_count; bin++) {
        double gap = ((double)bins[bin].right - (double)bins[bin].confidence / 4294967296.0);
        if (gap < 0) gap = -gap;
        expected += gap;
        if (bins[bin].count && gap / bins[bin].count > largest) largest = gap / bins[bin].count;
        count += bins[bin].count, right += bins[bin].right, confidence += bins[bin].confidence;
    }
    double n = count ? (double)count : 1;
    ValuesResult result = {.is_problem = 0};
    result.count = 4;
    result.values = allocate(4 * sizeof(Value));
    result.values[0] = (Value){string("ece"), expected / n};
    result.values[1] = (Value){string("mce"), largest};
    result.values[2] = (Value){string("confidence"), (double)confidence / 4294967296.0 / n};
    result.values[3] = (Value){string("accuracy"), (double)right / n};
    return result;
}
