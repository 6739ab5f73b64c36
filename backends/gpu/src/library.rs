//! The kernels' sources, compiled when one of them is first launched.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use assay_tensor::{Binary, Result, Unary};

use crate::driver::{Driver, Function};
use crate::error::to_tensor_error;

/// What every source may include.
const HEADERS: [(&str, &str); 7] = [
    ("vendor.h", include_str!("../kernels/vendor.h")),
    ("common.h", include_str!("../kernels/common.h")),
    ("attention.h", include_str!("../kernels/attention.h")),
    ("attention_gradient.h", include_str!("../kernels/attention_gradient.h")),
    ("fragments.h", include_str!("../kernels/fragments.h")),
    ("online_softmax.h", include_str!("../kernels/online_softmax.h")),
    ("warpgroup.h", include_str!("../kernels/warpgroup.h")),
];

/// The sources, which are compiled one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    AdamW,
    Attention,
    AttentionBf16,
    AttentionWarpgroup,
    Elementwise,
    Int8,
    Movement,
    Norm,
    Reduce,
    Rows,
    Scan,
    Softmax,
}

impl Topic {
    const ALL: [Topic; 12] = [
        Topic::AdamW,
        Topic::Attention,
        Topic::AttentionBf16,
        Topic::AttentionWarpgroup,
        Topic::Elementwise,
        Topic::Int8,
        Topic::Movement,
        Topic::Norm,
        Topic::Reduce,
        Topic::Rows,
        Topic::Scan,
        Topic::Softmax,
    ];

    /// The name of the file in `kernels`, and its text.
    fn source_file(self) -> (&'static str, &'static str) {
        match self {
            Topic::AdamW => ("adamw.cu", include_str!("../kernels/adamw.cu")),
            Topic::Attention => ("attention.cu", include_str!("../kernels/attention.cu")),
            Topic::AttentionBf16 => ("attention_bf16.cu", include_str!("../kernels/attention_bf16.cu")),
            Topic::AttentionWarpgroup => ("attention_warpgroup.cu", include_str!("../kernels/attention_warpgroup.cu")),
            Topic::Elementwise => ("elementwise.cu", include_str!("../kernels/elementwise.cu")),
            Topic::Int8 => ("int8.cu", include_str!("../kernels/int8.cu")),
            Topic::Movement => ("movement.cu", include_str!("../kernels/movement.cu")),
            Topic::Norm => ("norm.cu", include_str!("../kernels/norm.cu")),
            Topic::Reduce => ("reduce.cu", include_str!("../kernels/reduce.cu")),
            Topic::Rows => ("rows.cu", include_str!("../kernels/rows.cu")),
            Topic::Scan => ("scan.cu", include_str!("../kernels/scan.cu")),
            Topic::Softmax => ("softmax.cu", include_str!("../kernels/softmax.cu")),
        }
    }

    /// The names of its kernels.
    fn kernel_names(self) -> Vec<String> {
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        match self {
            Topic::AdamW => list(&["adamw", "adamw_all", "squares", "clip"]),
            Topic::Attention => {
                let mut names = by_width(["attention", "attention_keys", "attention_queries"], [64, 128, 256]);
                names.extend(["row_products", "weights_of_scores", "gradient_of_scores"].map(str::to_owned));
                names
            }
            Topic::AttentionBf16 => {
                let kinds = ["attention_bf16", "attention_bf16_keys", "attention_bf16_queries"];
                let mut names = by_width(kinds, [32, 64, 128]);
                names.push("attention_bf16_inner".to_owned());
                names
            }
            Topic::AttentionWarpgroup => list(&[
                "attention_warpgroup_64",
                "attention_warpgroup_128",
                "attention_warpgroup_keys_64",
                "attention_warpgroup_keys_128",
                "attention_warpgroup_queries_64",
                "attention_warpgroup_queries_128",
            ]),
            Topic::Elementwise => elementwise_kernels(),
            Topic::Int8 => list(&["quantize", "multiply_int8"]),
            Topic::Movement => movement_kernels(),
            Topic::Norm => list(&[
                "layer_norm",
                "layer_norm_bf16",
                "layer_norm_of_bf16",
                "layer_norm_backward",
                "layer_norm_backward_bf16",
                "layer_norm_affine",
                "layer_norm_affine_bf16",
            ]),
            Topic::Reduce => {
                list(&["reduce_rows", "reduce_columns", "reduce_columns_bf16", "reduce_columns_bf16_by_4"])
            }
            Topic::Rows => list(&["scatter_add"]),
            Topic::Scan => list(&["scan_states", "scan_ends", "scan_between", "scan_flow_ends", "scan_gradient"]),
            Topic::Softmax => list(&[
                "softmax",
                "log_softmax",
                "softmax_backward",
                "log_softmax_backward",
                "cross_entropy",
                "cross_entropy_backward",
                "cross_entropy_backward_bf16",
                "top_k_mask",
            ]),
        }
    }
}

/// Kernels that are compiled for several widths.
fn by_width(kinds: [&str; 3], widths: [usize; 3]) -> Vec<String> {
    kinds.iter().flat_map(|kind| widths.map(|width| format!("{kind}_{width}"))).collect()
}

fn elementwise_kernels() -> Vec<String> {
    let mut names = ["accumulate", "dropout", "dropout_at", "gelu_bf16"].map(str::to_owned).to_vec();
    for types in ["f32_f32", "f32_bf16", "bf16_f32", "bf16_bf16"] {
        names.push(format!("add_scaled_{types}"));
    }
    names.extend(["f32", "bf16"].map(|dtype| format!("add_scaled_backward_{dtype}")));
    names.extend(Unary::ALL.iter().map(|op| format!("unary_{}", op.name())));
    names.extend(Unary::ALL.iter().filter(|&&op| has_slope(op)).map(|op| format!("slope_{}", op.name())));
    for form in ["binary", "plane", "strided"] {
        names.extend(Binary::ALL.iter().map(|op| format!("{form}_{}", op.name())));
    }
    names
}

/// Whether an operation's gradient depends on more than the gradient of its value.
pub(crate) fn has_slope(op: Unary) -> bool {
    !matches!(op, Unary::Neg | Unary::Scale(_) | Unary::Offset(_) | Unary::Round)
}

fn movement_kernels() -> Vec<String> {
    let mut names = Vec::new();
    for kind in ["strided", "pieces", "gather"] {
        names.extend([1, 2, 4, 16].map(|bytes| format!("{kind}_{bytes}")));
    }
    names.extend([1, 2, 4].map(|bytes| format!("fill_{bytes}")));
    let types = ["f32", "bf16", "u32", "i8"];
    for from in types {
        names.extend(types.iter().filter(|&&to| to != from).map(|to| format!("{from}_to_{to}")));
    }
    names
}

/// The kernels of one topic by name.
type Compiled = BTreeMap<String, Function>;

/// What has been compiled so far.
#[derive(Debug, Default)]
pub(crate) struct Library([OnceLock<Compiled>; Topic::ALL.len()]);

impl Library {
    /// The kernel of this name. Errors if its source does not compile.
    pub(crate) fn find_kernel(
        &self,
        driver: &dyn Driver,
        operation: &'static str,
        topic: Topic,
        name: &str,
    ) -> Result<Function> {
        let place = &self.0[topic as usize];
        let compiled = match place.get() {
            Some(compiled) => compiled,
            None => {
                let compiled = compile_topic(driver, operation, topic)?;
                place.get_or_init(|| compiled)
            }
        };
        compiled.get(name).copied().ok_or_else(|| {
            let problem = format!("there is no kernel `{name}` in `{}`", topic.source_file().0);
            assay_tensor::TensorError::new(operation, problem)
        })
    }
}

fn compile_topic(driver: &dyn Driver, operation: &'static str, topic: Topic) -> Result<Compiled> {
    let names = topic.kernel_names();
    let list: Vec<&str> = names.iter().map(String::as_str).collect();
    let functions = driver
        .compile_kernels(topic.source_file().1, &HEADERS, &[], &list)
        .map_err(|error| to_tensor_error(operation, error))?;
    Ok(names.into_iter().zip(functions).collect())
}
