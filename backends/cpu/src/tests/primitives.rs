//! Elementwise operations, reductions, products and movement.

use assay_tensor::{Binary, DType, Kernels, Linear, Reduce, Unary};

use super::check_operation;

#[test]
fn unary_operations_and_their_gradients() {
    for op in Unary::ALL {
        for shape in [vec![], vec![0], vec![1], vec![3, 17], vec![5, 64]] {
            let low = if matches!(op, Unary::Ln | Unary::Sqrt | Unary::Reciprocal) { 0.3 } else { -6.0 };
            check_operation(op.name(), 3e-6, |k, o| {
                let x = o.numbers_between(low, 6.0, shape.clone());
                let y = k.unary(op, &x)?;
                let grad = o.random_floats(shape.clone());
                let saved = if op.gradient_needs_value() { &y } else { &x };
                let dx = k.unary_backward(op, saved, &grad)?;
                Ok(vec![y, dx])
            });
        }
    }
}

#[test]
fn binary_operations_broadcast() {
    let pairs: [(&[usize], &[usize]); 12] = [
        (&[7, 33], &[7, 33]),
        (&[7, 33], &[33]),
        (&[33], &[7, 33]),
        (&[7, 33], &[7, 1]),
        (&[7, 1], &[1, 33]),
        (&[], &[65]),
        (&[65], &[1]),
        (&[], &[]),
        (&[3, 1, 5], &[4, 1]),
        (&[2, 3, 4, 5], &[3, 1, 5]),
        (&[0, 4], &[4]),
        (&[2, 1, 1, 6], &[3, 5, 1]),
    ];
    for op in Binary::ALL {
        for (a, b) in pairs {
            check_operation(op.name(), 1e-6, |k, o| {
                let (x, mut y) = (o.random_floats(a), o.numbers_between(0.5, 2.0, b));
                if matches!(op, Binary::Equal | Binary::Greater) {
                    // Rounded, so that some are equal.
                    y = k.unary(Unary::Round, &y)?;
                }
                let x = if op == Binary::Equal { k.unary(Unary::Round, &x)? } else { x };
                Ok(vec![k.binary(op, &x, &y)?, k.binary(op, &y, &x)?])
            });
        }
    }
}

#[test]
fn reductions_over_any_axes() {
    let cases: [(&[usize], &[usize]); 10] = [
        (&[5, 37], &[1]),
        (&[137, 70], &[0]),
        (&[3, 5, 300], &[0, 1]),
        (&[3, 5, 7, 2], &[0, 2]),
        (&[3, 5, 7, 2], &[1, 3]),
        (&[10_000], &[0]),
        (&[4, 1, 3], &[1]),
        (&[4, 3], &[]),
        (&[], &[]),
        (&[2, 600, 3], &[1]),
    ];
    for op in Reduce::ALL {
        for (shape, axes) in cases {
            check_operation(op.name(), 3e-6, |k, o| {
                Ok(vec![k.reduce(op, &o.numbers_between(-0.5, 1.0, shape), axes)?])
            });
        }
    }
    check_operation("sum of nothing", 0.0, |k, o| Ok(vec![k.reduce(Reduce::Sum, &o.random_floats([3, 0]), &[1])?]));
    check_operation("sum of no rows", 0.0, |k, o| Ok(vec![k.reduce(Reduce::Sum, &o.random_floats([0, 3]), &[0])?]));
    for shape in [[2, 0, 65], [1, 0, 3000], [0, 0, 65]] {
        check_operation("sum of nothing, of many columns", 0.0, |k, o| {
            Ok(vec![k.reduce(Reduce::Sum, &o.random_floats(shape), &[1])?])
        });
    }
    check_operation("mean of no rows", 0.0, |k, o| Ok(vec![k.reduce(Reduce::Mean, &o.random_floats([0, 3]), &[1])?]));
}

#[test]
fn products_of_every_orientation() {
    let sizes = [(1, 1, 1), (3, 5, 7), (17, 33, 2), (1, 50, 64), (50, 1, 64), (4, 4, 0), (0, 3, 2), (160, 200, 130)];
    for (m, n, k) in sizes {
        for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
            check_operation("matmul", 1e-5 * (1.0 + (k as f64).sqrt()), |kernels, o| {
                let a = o.random_floats(if ta { [k, m] } else { [m, k] });
                let b = o.random_floats(if tb { [n, k] } else { [k, n] });
                Ok(vec![kernels.matmul(&a, &b, ta, tb)?])
            });
        }
    }
}

#[test]
fn products_in_batches() {
    let cases: [(&[usize], &[usize]); 5] = [
        (&[3, 4, 5], &[3, 5, 6]),
        (&[3, 4, 5], &[5, 6]),
        (&[4, 5], &[3, 5, 6]),
        (&[2, 1, 4, 5], &[3, 5, 6]),
        (&[0, 4, 5], &[5, 6]),
    ];
    for (a, b) in cases {
        check_operation("matmul in batches", 1e-5, |k, o| {
            let (a, b) = (o.random_floats(a), o.random_floats(b));
            let both = [k.matmul(&a, &b, false, false)?];
            Ok(both.into_iter().collect())
        });
    }
}

#[test]
fn large_products_are_cut_by_their_shape_alone() {
    // Each of these is cut into several blocks, along rows, columns or both, with ragged ends.
    for (m, n, k) in [(300, 210, 190), (33, 400, 300), (700, 50, 100), (2000, 3, 500), (5, 2000, 500)] {
        check_operation("large matmul", 1e-4, |kernels, o| {
            let (a, w, bias) =
                (o.numbers_between(-1.0, 1.0, [m, k]), o.numbers_between(-1.0, 1.0, [n, k]), o.random_floats(n));
            let (g, x) = (o.random_floats([m, n]), o.random_floats([m, k]));
            Ok(vec![
                Linear { x: &a, weight: &w, bias: Some(&bias), base: None }.run(kernels)?,
                Linear { x: &a, weight: &w, bias: None, base: None }.run(kernels)?,
                kernels.matmul(&g, &w, false, false)?,
                kernels.unary(Unary::Scale(1e-2), &kernels.matmul(&g, &x, true, false)?)?,
            ])
        });
    }
}

#[test]
fn movement_of_every_type() {
    for dtype in [DType::F32, DType::Bf16, DType::U32, DType::I8] {
        let typed = |k: &dyn Kernels, o: &mut super::Operands<'_>, shape: &[usize]| match dtype {
            DType::U32 => Ok(o.random_ids(99, shape)),
            DType::I8 => Ok(o.random_bytes(shape)),
            DType::Bf16 => k.cast(&o.random_floats(shape), dtype),
            _ => k.unary(Unary::Offset(0.0), &o.random_floats(shape)),
        };
        check_operation("movement", 0.0, |k, o| {
            let x = typed(k, o, &[3, 4, 17])?;
            let (y, e) = (typed(k, o, &[3, 2, 17])?, typed(k, o, &[3, 0, 17])?);
            let c = typed(k, o, &[3, 1, 17])?;
            let mut found = Vec::new();
            for axes in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                found.push(k.permute(&x, &axes)?);
            }
            for axis in 0..3 {
                found.push(k.slice(&x, axis, 1, 2)?);
                found.push(k.slice(&x, axis, 1, 0)?);
                found.push(k.concat(&[&x, &x], axis)?);
            }
            found.push(k.concat(&[&x, &e, &y], 1)?);
            found.push(k.permute(&e, &[2, 1, 0])?);
            found.push(k.broadcast(&c, &[5, 3, 4, 17].into())?);
            found.push(k.broadcast(&c.viewed([3, 17, 1]), &[3, 17, 6].into())?);
            found.push(k.broadcast(&e, &[2, 3, 0, 17].into())?);
            Ok(found)
        });
    }
}

#[test]
fn rows_are_gathered_and_scattered() {
    for (v, d) in [(1, 1), (11, 5), (40, 64), (3, 0)] {
        check_operation("rows", 1e-6, |k, o| {
            let (table, ids) = (o.random_floats([v, d]), o.random_ids(v, [6, 5]));
            let x = o.random_floats([6, 5, d]);
            let rows = k.gather_rows(&table, &ids)?;
            Ok(vec![rows, k.scatter_add_rows(&x, &ids, v)?])
        });
    }
    check_operation("rows of no ids", 0.0, |k, o| {
        let (table, ids) = (o.random_floats([0, 4]), o.random_ids(1, 0));
        Ok(vec![k.gather_rows(&table, &ids)?, k.scatter_add_rows(&o.random_floats([0, 4]), &ids, 2)?])
    });
}

#[test]
fn sums_grow_in_place_only_where_nobody_looks() {
    check_operation("accumulate", 1e-6, |k, o| {
        let (a, b) = (o.random_floats([9, 31]), o.random_floats([9, 31]));
        let shared = k.accumulate(a.clone(), &b)?;
        let kept = k.unary(Unary::Offset(0.0), &a)?;
        Ok(vec![shared, kept, k.accumulate(a, &b)?])
    });
    for length in [1, 31, 10_000] {
        check_operation("accumulate_all", 1e-6, |k, o| {
            let [a, b, c] = [o.random_floats(length), o.random_floats(length), o.random_floats(length)];
            let shared = k.accumulate_all(a.clone(), &[&b, &c])?;
            let kept = k.unary(Unary::Offset(0.0), &a)?;
            Ok(vec![shared, kept, k.accumulate_all(a, &[&b, &c])?, k.accumulate_all(b, &[])?])
        });
    }
}
