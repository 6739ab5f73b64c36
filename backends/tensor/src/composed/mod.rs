//! The composed form of each fused operation: its definition in terms of primitives, and its default.

mod attention;
mod layers;
mod loss;
mod selection;
mod update;

pub(crate) use attention::{attention, attention_backward};
pub use layers::{LEAST_PEAK, feed_forward, feed_forward_backward};
pub(crate) use layers::{
    adamw, add_scaled, add_scaled_backward, broadcast, layer_norm, layer_norm_backward, layer_norm_bf16, linear,
    linear_gelu, linear_gelu_backward, linear_int8,
};
pub(crate) use loss::{cross_entropy, cross_entropy_backward, cross_entropy_hits};
pub use selection::{HIDDEN, dropout_keeps, mix};
pub(crate) use selection::{dropout, dropout_at, top_k_mask};
pub use update::clip_factor;
pub(crate) use update::{adamw_all, clip};
