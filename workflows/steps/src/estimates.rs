//! Reports estimates as metrics.

use assay_statistics::Estimate;

use crate::context::Context;

/// Reports `NAME`, and the ends of its interval as `NAME_low` and `NAME_high`.
pub(crate) fn report_estimate(context: &mut dyn Context, name: &str, estimate: &Estimate) {
    context.metric(name, 0, estimate.value);
    report_present(context, [(format!("{name}_low"), estimate.low()), (format!("{name}_high"), estimate.high())]);
}

/// Reports `PATH/ratio`, the ends of its interval as `PATH/low` and `PATH/high`, and the p-value of the comparison as `PATH/p`.
pub(crate) fn report_ratio(context: &mut dyn Context, path: &str, ratio: &Estimate, p: Option<f64>) {
    context.metric(&format!("{path}/ratio"), 0, ratio.value);
    let others = [("low", ratio.low()), ("high", ratio.high()), ("p", p)];
    report_present(context, others.map(|(name, value)| (format!("{path}/{name}"), value)));
}

fn report_present<const N: usize>(context: &mut dyn Context, metrics: [(String, Option<f64>); N]) {
    for (name, value) in metrics {
        if let Some(value) = value {
            context.metric(&name, 0, value);
        }
    }
}
