//! The norm of all gradients, and the fused AdamW update: few launches for all parameters of a model.
//!
//! What a launch goes through is a table that is itself an argument, so that it needs no memory of the device, and a graph that
//! is made of the launch has it within.

use std::sync::Arc;

use assay_tensor::{AdamW, Array, DType, Result, Shape, Update};

use crate::driver::{Address, Argument, Launch};
use crate::gpu::{Gpu, THREADS, block_count, count_argument};
use crate::library::Topic;
use crate::storage::Buffer;

const NAME: &str = "adamw";
/// Elements whose squares a block adds, as in `adamw.cu`.
const SPAN: usize = 16_384;
/// Elements that a block updates, as there.
const UPDATES: usize = 4096;
/// Arrays that one launch goes through, as there.
const MOST: usize = 64;

/// What a launch knows of an array: where it and what belongs to it is, how long they are, and whether they decay.
struct Member<const POINTERS: usize> {
    pointers: [Option<Address>; POINTERS],
    elements: usize,
    decays: bool,
}

/// A launch through several arrays: the struct that is its first parameter, how many there are, and its blocks.
struct Group {
    arguments: Vec<Argument>,
    blocks: usize,
}

impl Group {
    /// Blocks of `span` elements each. There are no more than [`MOST`] members.
    fn new<const POINTERS: usize>(members: &[Member<POINTERS>], span: usize) -> Group {
        let (mut words, mut blocks) = (Vec::with_capacity(MOST * (POINTERS + 2) + 1), 0);
        for member in members {
            words.extend(member.pointers.map(Argument::ThenPointer));
            let place = blocks as u64 | u64::from(member.decays) << 32;
            words.extend([member.elements as u64, place].map(Argument::ThenU64));
            blocks += member.elements.div_ceil(span);
        }
        words.resize(MOST * (POINTERS + 2), Argument::ThenU64(0));
        if let Some(first) = words.first_mut()
            && let Argument::ThenPointer(address) = *first
        {
            *first = Argument::Pointer(address);
        }
        words.push(Argument::U32(members.len() as u32));
        Group { arguments: words, blocks }
    }
}

impl Gpu {
    /// Copies what other handles hold on to, so that they keep what they had.
    fn make_unique(&self, x: &mut Array) -> Result<()> {
        if Arc::get_mut(&mut x.buffer).is_some() {
            return Ok(());
        }
        let from = self.typed_buffer(NAME, x, DType::F32)?;
        let copy = self.allocate_f32(NAME, &x.shape)?;
        if let (Some(from), Some(to)) = (from.address(), copy.address()) {
            self.convert_error(NAME, self.driver.copy_on_device(to, from, copy.bytes()))?;
        }
        *x = copy.into_array(&x.shape);
        Ok(())
    }

    /// Updates a parameter and its moments in place.
    pub(crate) fn apply_adamw(&self, [param, m, v]: [&mut Array; 3], grad: &Array, args: AdamW) -> Result<()> {
        let g = self.f32_pointer(NAME, grad)?;
        self.make_unique(param)?;
        self.make_unique(m)?;
        self.make_unique(v)?;
        if grad.numel() == 0 {
            return Ok(());
        }
        let (beta1, beta2) = args.betas;
        let step = args.step as f64;
        let factors = [
            args.grad_scale,
            beta1,
            1.0 - beta1,
            beta2,
            1.0 - beta2,
            1.0 / (1.0 - beta1.powf(step)),
            1.0 / (1.0 - beta2.powf(step)),
            args.eps,
            args.lr,
            1.0 - args.lr * args.weight_decay,
        ];
        let state = |x: &Array| self.typed_buffer(NAME, x, DType::F32).map(Buffer::pointer);
        let mut arguments = vec![state(param)?, g, state(m)?, state(v)?];
        arguments.extend(factors.map(|factor| Argument::F32(factor as f32)));
        arguments.push(count_argument(grad.numel()));
        self.launch_kernel(NAME, (Topic::AdamW, NAME), self.line_grid(grad.numel()), &arguments)
    }

    /// Updates several parameters and their moments in place, by factors that are in the device's memory.
    pub(crate) fn update_all(
        &self,
        updates: Vec<Update<'_, Array>>,
        args: AdamW,
        factors: &Array,
        clip: &Array,
    ) -> Result<()> {
        let (factors, clip) = (self.f32_pointer(NAME, factors)?, self.f32_pointer(NAME, clip)?);
        let (beta1, beta2) = args.betas;
        let fixed = [beta1, 1.0 - beta1, beta2, 1.0 - beta2, args.eps].map(|factor| Argument::F32(factor as f32));
        let mut members = Vec::with_capacity(updates.len());
        for Update { param, grad, m, v, decays } in updates {
            let elements = grad.numel();
            let g = self.typed_buffer(NAME, grad, DType::F32)?.address();
            self.make_unique(param)?;
            self.make_unique(m)?;
            self.make_unique(v)?;
            let state = |x: &Array| self.typed_buffer(NAME, x, DType::F32).map(Buffer::address);
            members.push(Member { pointers: [state(param)?, g, state(m)?, state(v)?], elements, decays });
        }
        members.retain(|member| member.elements > 0);
        for members in members.chunks(MOST) {
            let Group { mut arguments, blocks } = Group::new(members, UPDATES);
            arguments.extend([factors, clip]);
            arguments.extend(fixed);
            self.launch_kernel(NAME, (Topic::AdamW, "adamw_all"), self.block_grid(NAME, blocks)?, &arguments)?;
        }
        Ok(())
    }

    /// A row of so many blocks.
    fn block_grid(&self, operation: &'static str, blocks: usize) -> Result<Launch> {
        Ok(Launch { grid: [block_count(operation, blocks)?, 1, 1], block: [THREADS, 1, 1], shared: 0 })
    }

    /// The norm of all gradients together, and the factor that brings it down to the limit.
    pub(crate) fn global_norm(&self, gradients: &[&Array], limit: Option<f64>) -> Result<Array> {
        let name = "clip";
        let member = |gradient: &&Array| {
            let pointers = [self.typed_buffer(name, gradient, DType::F32)?.address()];
            Ok(Member { pointers, elements: gradient.numel(), decays: false })
        };
        let mut members = gradients.iter().map(member).collect::<Result<Vec<_>>>()?;
        members.retain(|member| member.elements > 0);
        let all: usize = members.iter().map(|member| member.elements.div_ceil(SPAN)).sum();
        // Sums in f64, each in the place of two f32.
        let parts = self.allocate_scratch(name, 2 * all.max(1))?;
        let mut first = 0;
        for members in members.chunks(MOST) {
            let Group { mut arguments, blocks } = Group::new(members, SPAN);
            arguments.push(parts.pointer_at(2 * first));
            self.launch_kernel(name, (Topic::AdamW, "squares"), self.block_grid(name, blocks)?, &arguments)?;
            first += blocks;
        }
        let shape = Shape::from(2);
        let y = self.allocate_f32(name, &shape)?;
        let launch = self.block_grid(name, 1)?;
        let limit = Argument::U64(limit.unwrap_or(f64::INFINITY).to_bits());
        self.launch_kernel(
            name,
            (Topic::AdamW, name),
            launch,
            &[y.pointer(), parts.pointer(), count_argument(all), limit],
        )?;
        Ok(y.into_array(shape))
    }
}
