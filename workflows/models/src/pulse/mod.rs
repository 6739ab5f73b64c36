//! PULSE: state slots are passed along the sequence; each chunk of tokens is routed into them, and reads the state that
//! previous chunks left there.
//!
//! ```text
//! B sequences    T tokens    D width    S slots of width P    C chunk    M rows of memory of width W
//!
//! routing   r_ts = (W_q x_t) . (W_k s_s) / sqrt(P)       s_s: the slots before the chunk of t
//!           p_t  = softmax of r_t over its top-k slots; `routing: dense` keeps all. The gradient flows through the
//!                  kept ones; ties go to the lower index
//! write     u_s  = sum_t p_ts (W_v x_t) / (sum_t p_ts + 1e-6), over the tokens t of the chunk
//! update    gru:   z, f = sigmoid(W_z [s; u]), sigmoid(W_f [s; u]);  h = tanh(W_h [f * s; u]);  s' = (1 - z) s + z h
//!           lstm:  i, f, o = sigmoid(W_g [s; u]);  c' = f c + i tanh(W_h [s; u]);  s' = o tanh(c')
//! mix       s'' = norm(s' + MHA(s', s', s'))             `mixing: off` omits it
//! read      y_t  = W_o sum_s p_ts (W_c s_s)              slots before the chunk: strictly causal
//!
//! local     attention: causal, over the tokens of the chunk up to t
//!           conv:      sum_j w_j * x_{t-j}, j = 0..3, depthwise; x before the chunk's start counts as 0
//! memory    read   sum_i a_ti m_i through W_r: W to D,  a_t = softmax_i((W_a x_t) . m_i / sqrt(W))
//!           write  [k; e; v] = W_w mean_t x_t;  b = softmax_i(k . m_i / sqrt(W));
//!                  m_i' = m_i (1 - b_i sigmoid(e)) + b_i tanh(v)               after each chunk (Graves et al. 2014)
//!
//! block     x += read + local + memory, all on norm x;  x += FFN(norm x);  one norm after the last block
//!           every `attention_every`-th block is a transformer block: x += attention(norm x) instead of the first branch
//! ```
//!
//! Chunks are at absolute positions, multiples of C, so dividing a sequence anywhere changes nothing: within a chunk
//! the slots are constant, and the values written to them are a running sum. Only the routing and the update are
//! sequential over chunks; projections, the local mixer and the feed-forward network process all chunks at once.
//!
//! W_q, W_v and W_o are matrices of tokens, but they are combined with sums over slots: (W_q x) . k = x . (W_q^T k), sum p
//! (W_v x) = W_v sum p x, and W_o sum p c = sum p (W_o c). If a piece of a chunk has many more tokens than there are slots,
//! they are applied to the slots (`folded.rs`): with 16 slots and chunks of 64, this is a quarter of the work. The carry is
//! the same.
//!
//! With rope, the queries and keys of the local attention are rotated by their position in the chunk, those of an
//! attention block by their position in the sequence. The initial slots, LSTM cells and memory are learned.
//!
//! | in the carry, below `blocks.L.` | shape | |
//! |---|---|---|
//! | `slots.state`, `slots.cell` | `[B, S, P]` | s, and the c of an LSTM |
//! | `slots.sides` | `[B, S, 2P]` | in the middle of a chunk: W_k s and W_c s |
//! | `slots.sum`, `slots.mass` | `[B, S, P]`, `[B, S, 1]` | the same: the sum written so far, and the sum of the weights |
//! | `local.keys`, `local.values` | `[B, H, t, D / H]` | the same: of the t tokens of the chunk so far |
//! | `local.inputs` | `[B, 3, D]` | the same, for a convolution |
//! | `memory.state`, `memory.sum` | `[B, M, W]`, `[B, D]` | m; and in the middle of a chunk the sum of x |
//!
//! Parameters: `embedding.table`, `positions.table`, `norm`, and below `blocks.L.`: `norm1`, `norm2`,
//! `ffn.{up, gate, down}`, `slots.{initial, initial_cell}`, `slots.in` (W_q above W_v), `slots.sides` (W_k above W_c),
//! `slots.gates` (W_z above W_f, or W_g), `slots.candidate` (W_h), `slots.mix.{qkv, out, norm}`, `slots.out` (W_o),
//! `local.{qkv, out}` or `local.taps`, `memory.{initial, query, out, write}`; in a block of attention
//! `attention.{qkv, out}` in place of slots, local mixer and memory.

mod folded;
mod gate;
mod local;
mod memory;
mod network;
mod routing;
mod slots;
mod telemetry;

pub use folded::folds;
pub use gate::{Gate, SlotState};
pub use local::{Kind, Local, TAPS, Window};
pub use memory::Memory;
pub use network::{Block, Chunked, Mixer, Pulse};
pub use routing::ROUTE_TOKEN;
pub use slots::{Mix, Observer, Slots};
