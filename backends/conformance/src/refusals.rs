//! Bad arguments: each is refused with an error that says what is wrong, and nothing panics.

use assay_tensor::{
    AdamW, AttentionKind, AttentionOptions, Columns, DType, Device, Int8Linear, Norm, Result, Rotary, ScanArgs, Skip,
    Tensor, TensorError, adamw, checkpoint, diagonal_scan,
};

use crate::report::Report;

/// Operands for bad calls.
struct Operands<'a> {
    device: &'a Device,
    float: DType,
}

impl Operands<'_> {
    fn floats(&self, shape: &[usize]) -> Result<Tensor> {
        Tensor::full(self.device, shape, self.float, 0.5)
    }

    fn ids(&self, shape: &[usize], value: u32) -> Result<Tensor> {
        Tensor::full(self.device, shape, DType::U32, f64::from(value))
    }

    fn bytes(&self, shape: &[usize]) -> Result<Tensor> {
        Tensor::zeros(self.device, shape, DType::I8)
    }
}

type Call = fn(&Operands<'_>) -> Result<()>;

/// Sees that `device`, which computes in `float`, refuses every bad call.
pub fn check_refusals(device: &Device, float: DType) -> Report {
    let operands = Operands { device, float };
    let mut report = Report::default();
    for list in [ELEMENTARY, MOVEMENT, FUSED, TAPE] {
        for (name, call) in list {
            report.run(name, || check_refused(call(&operands)));
        }
    }
    report.run("an operand of another device", || {
        let text = |error: TensorError| error.to_string();
        let mine = operands.floats(&[2]).map_err(text)?;
        let other = Tensor::full(&assay_reference::device(), 2, float, 1.0).map_err(text)?;
        check_refused(mine.add(&other).map(drop))?;
        check_refused(Tensor::concat(&[&mine, &other], 0).map(drop))
    });
    report
}

/// An error that names its operation and says something.
fn check_refused(outcome: Result<()>) -> std::result::Result<(), String> {
    match outcome {
        Ok(()) => Err("it was accepted".into()),
        Err(error) if error.operation().is_empty() || error.problem().is_empty() => {
            Err(format!("the error says nothing: {error:?}"))
        }
        Err(_) => Ok(()),
    }
}

const ELEMENTARY: &[(&str, Call)] = &[
    ("too few elements", |o| Tensor::from_f32(o.device, vec![1.0; 5], [2, 3]).map(drop)),
    ("a shape beyond memory", |o| Tensor::zeros(o.device, [usize::MAX, 2], o.float).map(drop)),
    ("huge extents without elements", |o| Tensor::zeros(o.device, [usize::MAX, 0, 2], o.float).map(drop)),
    ("add of shapes that do not broadcast", |o| o.floats(&[2, 3])?.add(&o.floats(&[2])?).map(drop)),
    ("add of two types", |o| o.floats(&[2])?.add(&o.ids(&[2], 1)?).map(drop)),
    ("exp of ids", |o| o.ids(&[2], 1)?.exp().map(drop)),
    ("mul beyond memory", |o| {
        let long = o.floats(&[1 << 16])?;
        let column = long.reshape([1 << 16, 1])?;
        let plane = column.reshape([1 << 16, 1, 1, 1])?;
        plane.broadcast_to([1 << 16, 1 << 16, 1 << 16, 1 << 16]).map(drop)
    }),
    ("sum over an axis that is not there", |o| o.floats(&[2, 3])?.sum(&[2], false).map(drop)),
    ("sum over an axis twice", |o| o.floats(&[2, 3])?.sum(&[1, 1], false).map(drop)),
    ("mean of nothing", |o| o.floats(&[2, 0])?.mean(&[1], false).map(drop)),
    ("max of nothing", |o| o.floats(&[0])?.max(&[0], true).map(drop)),
    ("sum of ids", |o| o.ids(&[2], 1)?.sum(&[0], false).map(drop)),
    ("matmul of unequal inner extents", |o| o.floats(&[2, 3])?.matmul(&o.floats(&[4, 2])?).map(drop)),
    ("matmul of a vector", |o| o.floats(&[3])?.matmul(&o.floats(&[3, 2])?).map(drop)),
    ("matmul of batches that do not broadcast", |o| o.floats(&[2, 3, 4])?.matmul(&o.floats(&[3, 4, 5])?).map(drop)),
    ("matmul of ids", |o| o.ids(&[2, 2], 1)?.matmul(&o.ids(&[2, 2], 1)?).map(drop)),
    ("an item of many", |o| o.floats(&[2])?.item().map(drop)),
    ("f32 elements of ids", |o| o.ids(&[2], 1)?.to_f32_vec().map(drop)),
    ("u32 elements of floats", |o| o.floats(&[2])?.to_u32_vec().map(drop)),
    ("i8 elements of floats", |o| o.floats(&[2])?.to_i8_vec().map(drop)),
];

const MOVEMENT: &[(&str, Call)] = &[
    ("permute with an axis left out", |o| o.floats(&[2, 3])?.permute(&[0]).map(drop)),
    ("permute with an axis twice", |o| o.floats(&[2, 3])?.permute(&[0, 0]).map(drop)),
    ("transpose of an axis that is not there", |o| o.floats(&[2, 3])?.transpose(0, 2).map(drop)),
    ("reshape to another number of elements", |o| o.floats(&[2, 3])?.reshape([4, 2]).map(drop)),
    ("reshape to what overflows", |o| o.floats(&[2])?.reshape([usize::MAX, 2]).map(drop)),
    ("reshape to huge extents without elements", |o| o.floats(&[0])?.reshape([0, 1 << 62]).map(drop)),
    ("broadcast to huge extents without elements", |o| o.floats(&[0, 1])?.broadcast_to([0, 1 << 62]).map(drop)),
    ("product of huge extents without elements", |o| {
        let (tall, wide) = (o.floats(&[1 << 40, 0])?, o.floats(&[0, 1 << 40])?);
        tall.matmul(&wide).map(drop)
    }),
    ("concat to huge extents without elements", |o| {
        let long = o.floats(&[1 << 59, 0])?;
        Tensor::concat(&[&long; 40], 0).map(drop)
    }),
    ("broadcast to something smaller", |o| o.floats(&[2, 3])?.broadcast_to([3]).map(drop)),
    ("slice past the end", |o| o.floats(&[5])?.slice(0, 3, 3).map(drop)),
    ("slice from what overflows", |o| o.floats(&[5])?.slice(0, usize::MAX, 2).map(drop)),
    ("split into chunks that do not add up", |o| o.floats(&[5])?.split(0, &[2, 2]).map(drop)),
    ("split into what overflows", |o| o.floats(&[5])?.split(0, &[usize::MAX, 6]).map(drop)),
    ("split into nothing", |o| o.floats(&[0])?.split(0, &[]).map(drop)),
    ("slice of a scalar", |o| o.floats(&[])?.slice(0, 0, 1).map(drop)),
    ("concat of nothing", |_| Tensor::concat(&[], 0).map(drop)),
    ("concat of shapes that differ", |o| Tensor::concat(&[&o.floats(&[2, 3])?, &o.floats(&[2, 4])?], 0).map(drop)),
    ("concat of ranks that differ", |o| Tensor::concat(&[&o.floats(&[2, 3])?, &o.floats(&[2])?], 0).map(drop)),
    ("concat of two types", |o| Tensor::concat(&[&o.floats(&[2])?, &o.ids(&[2], 1)?], 0).map(drop)),
    ("rows beyond the table", |o| o.floats(&[3, 2])?.rows(&o.ids(&[2], 3)?).map(drop)),
    ("rows of an empty table", |o| o.floats(&[0, 2])?.rows(&o.ids(&[2], 0)?).map(drop)),
    ("rows by floats", |o| o.floats(&[3, 2])?.rows(&o.floats(&[2])?).map(drop)),
    ("rows of no matrix", |o| o.floats(&[3])?.rows(&o.ids(&[2], 0)?).map(drop)),
];

fn attend(o: &Operands<'_>, q: &[usize], k: &[usize], v: &[usize], causal: bool) -> Result<()> {
    for kind in [AttentionKind::Full, AttentionKind::Flash] {
        let options = AttentionOptions { causal, scale: 1.0, kind };
        o.floats(q)?.attention(&o.floats(k)?, &o.floats(v)?, options)?;
    }
    Ok(())
}

fn scan(o: &Operands<'_>, decay: &[usize], input: &[usize], carry: &[usize], segment: Option<usize>) -> Result<()> {
    let (decay, input, carry) = (o.floats(decay)?, o.floats(input)?, o.floats(carry)?);
    let args = ScanArgs {
        decay_re: &decay,
        decay_im: &decay,
        input_re: &input,
        input_im: None,
        carry_re: &carry,
        carry_im: &carry,
        segment,
    };
    diagonal_scan(args).map(drop)
}

fn int8_layer(o: &Operands<'_>, x: &Tensor, q: &[usize], scale: &[usize]) -> Result<()> {
    x.linear_int8(&o.bytes(q)?, &Tensor::zeros(o.device, scale, DType::F32)?).map(drop)
}

/// A layer of 5 from 3, with one operand as `change` has it.
fn fused(
    o: &Operands<'_>,
    from: usize,
    change: &dyn for<'a> Fn(&'a Tensor, &mut Int8Linear<'a, Tensor>),
) -> Result<()> {
    let (x, q, scale, odd) = (singles(o, &[2, 4])?, o.bytes(&[5, 3])?, singles(o, &[5])?, singles(o, &[2, 7])?);
    let mut layer = Int8Linear::new(&q, &scale);
    change(&odd, &mut layer);
    Tensor::int8_linear([Columns { of: &x, from, width: 3 }], [layer]).map(drop)
}

/// Three places of two heads of two channels, rotated by tables of this shape.
fn heads(o: &Operands<'_>, tables: &[usize], first: usize) -> Result<()> {
    let tables = o.floats(tables)?;
    o.floats(&[2, 3, 12])?.heads(2, Some(Rotary { cos: &tables, sin: &tables, first })).map(drop)
}

fn singles(o: &Operands<'_>, shape: &[usize]) -> Result<Tensor> {
    Tensor::zeros(o.device, shape, DType::F32)
}

const FUSED: &[(&str, Call)] = &[
    ("softmax of a scalar", |o| o.floats(&[])?.softmax().map(drop)),
    ("log_softmax of empty rows", |o| o.floats(&[2, 0])?.log_softmax().map(drop)),
    ("layer_norm of empty rows", |o| o.floats(&[2, 0])?.layer_norm(&o.floats(&[0])?, &o.floats(&[0])?, 1e-5).map(drop)),
    ("layer_norm with a wide gain", |o| {
        o.floats(&[2, 3])?.layer_norm(&o.floats(&[4])?, &o.floats(&[3])?, 1e-5).map(drop)
    }),
    ("layer_norm with a wide bias", |o| {
        o.floats(&[2, 3])?.layer_norm(&o.floats(&[3])?, &o.floats(&[1, 3])?, 1e-5).map(drop)
    }),
    ("cross_entropy of a target beyond", |o| o.floats(&[2, 3])?.cross_entropy(&o.ids(&[2], 3)?, 0.0).map(drop)),
    ("cross_entropy of too many targets", |o| o.floats(&[2, 3])?.cross_entropy(&o.ids(&[3], 0)?, 0.0).map(drop)),
    ("cross_entropy of float targets", |o| o.floats(&[2, 3])?.cross_entropy(&o.floats(&[2])?, 0.0).map(drop)),
    ("cross_entropy of three axes", |o| o.floats(&[2, 3, 4])?.cross_entropy(&o.ids(&[2], 0)?, 0.0).map(drop)),
    ("cross_entropy smoothed to NaN", |o| o.floats(&[2, 3])?.cross_entropy(&o.ids(&[2], 0)?, f64::NAN).map(drop)),
    ("linear of another width", |o| o.floats(&[2, 3])?.linear(&o.floats(&[5, 4])?, None).map(drop)),
    ("linear of a scalar", |o| o.floats(&[])?.linear(&o.floats(&[5, 1])?, None).map(drop)),
    ("linear with a short bias", |o| o.floats(&[2, 3])?.linear(&o.floats(&[5, 3])?, Some(&o.floats(&[4])?)).map(drop)),
    ("linear with no matrix", |o| o.floats(&[2, 3])?.linear(&o.floats(&[3])?, None).map(drop)),
    ("linear_int8 of another width", |o| int8_layer(o, &singles(o, &[2, 3])?, &[5, 4], &[5])),
    ("linear_int8 with too few scales", |o| int8_layer(o, &singles(o, &[2, 3])?, &[5, 3], &[4])),
    ("linear_int8 of a variable", |o| int8_layer(o, &singles(o, &[2, 3])?.variable(), &[5, 3], &[5])),
    ("linear_int8 of ids", |o| int8_layer(o, &o.ids(&[2, 3], 0)?, &[5, 3], &[5])),
    ("int8_linear of columns that are not there", |o| fused(o, 2, &|_, _| {})),
    ("int8_linear with a bias of another shape", |o| fused(o, 0, &|odd, layer| layer.bias = Some(odd))),
    ("int8_linear with a residual of another shape", |o| fused(o, 0, &|odd, layer| layer.residual = Some(odd))),
    ("int8_linear with a skip of another shape", |o| {
        fused(o, 0, &|odd, layer| layer.skip = Some(Skip { factor: odd, of: odd, norm: None }))
    }),
    ("int8_linear with a norm of another shape", |o| {
        fused(o, 0, &|odd, layer| layer.norm = Some(Norm { gain: odd, bias: odd, eps: 1e-5 }))
    }),
    ("int8_linear of nothing", |_| Tensor::int8_linear::<0, 0>([], []).map(drop)),
    ("linear_int8 with float weights", |o| {
        let x = singles(o, &[2, 3])?;
        x.linear_int8(&singles(o, &[5, 3])?, &singles(o, &[5])?).map(drop)
    }),
    ("heads that do not divide", |o| o.floats(&[2, 3, 10])?.heads(2, None).map(drop)),
    ("no heads", |o| o.floats(&[2, 3, 12])?.heads(0, None).map(drop)),
    ("heads of a matrix", |o| o.floats(&[2, 12])?.heads(2, None).map(drop)),
    ("heads of ids", |o| o.ids(&[2, 3, 12], 0)?.heads(2, None).map(drop)),
    ("heads turned beyond the tables", |o| heads(o, &[4, 1], 2)),
    ("heads turned from what overflows", |o| heads(o, &[4, 1], usize::MAX)),
    ("heads turned by wide tables", |o| heads(o, &[9, 2], 0)),
    ("attention of three axes", |o| attend(o, &[2, 3, 4], &[2, 3, 4], &[2, 3, 4], false)),
    ("attention of other heads", |o| attend(o, &[1, 2, 3, 4], &[1, 3, 3, 4], &[1, 3, 3, 4], false)),
    ("attention of other values", |o| attend(o, &[1, 2, 3, 4], &[1, 2, 3, 4], &[1, 2, 5, 4], false)),
    ("attention to no keys", |o| attend(o, &[1, 2, 3, 4], &[1, 2, 0, 4], &[1, 2, 0, 4], false)),
    ("causal attention to fewer keys", |o| attend(o, &[1, 1, 3, 2], &[1, 1, 2, 2], &[1, 1, 2, 2], true)),
    ("dropout of everything", |o| o.floats(&[3])?.dropout(1.0, 0).map(drop)),
    ("dropout with NaN", |o| o.floats(&[3])?.dropout(f64::NAN, 0).map(drop)),
    ("top_k_mask of too many", |o| o.floats(&[2, 3])?.top_k_mask(4).map(drop)),
    ("top_k_mask of none", |o| o.floats(&[2, 3])?.top_k_mask(0).map(drop)),
    ("checkpoint of nothing", |_| checkpoint(&[], |_| Ok(Vec::new())).map(drop)),
    ("diagonal_scan with a decay of other steps", |o| scan(o, &[2, 4, 3], &[2, 5, 3], &[2, 3], None)),
    ("diagonal_scan of two axes", |o| scan(o, &[3], &[2, 3], &[2, 3], None)),
    ("diagonal_scan of other states", |o| scan(o, &[4], &[2, 5, 3], &[2, 3], None)),
    ("diagonal_scan with another carry", |o| scan(o, &[3], &[2, 5, 3], &[1, 3], None)),
    ("diagonal_scan in segments of nothing", |o| scan(o, &[3], &[2, 5, 3], &[2, 3], Some(0))),
];

fn adamw_update(o: &Operands<'_>, grad: &[usize], moment: &[usize], step: u64) -> Result<()> {
    let args = AdamW { step, lr: 0.1, betas: (0.9, 0.99), eps: 1e-8, weight_decay: 0.0, grad_scale: 1.0 };
    let (mut m, mut v) = (o.floats(moment)?, o.floats(moment)?);
    adamw(&mut o.floats(&[3])?, &o.floats(grad)?, &mut m, &mut v, args)
}

const TAPE: &[(&str, Call)] = &[
    ("the gradient of many", |o| o.floats(&[2])?.variable().backward().map(drop)),
    ("the gradient of a constant", |o| o.floats(&[])?.backward().map(drop)),
    ("the gradient of what was detached", |o| o.floats(&[])?.variable().exp()?.detach().backward().map(drop)),
    ("adamw with another gradient", |o| adamw_update(o, &[4], &[3], 1)),
    ("adamw with other moments", |o| adamw_update(o, &[3], &[3, 1], 1)),
    ("adamw at step 0", |o| adamw_update(o, &[3], &[3], 0)),
];
