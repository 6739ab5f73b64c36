//! What is refused, and that denormals are flushed.

use assay_tensor::{
    Arguments, Array, CROSS_ENTROPY, CROSS_ENTROPY_BACKWARD, DType, Device, HostData, LINEAR_GELU_BACKWARD, Shape,
    Unary,
};

fn upload(device: &Device, data: HostData) -> Array {
    let shape = Shape::from(data.len());
    device.kernels().upload(data, &shape).unwrap()
}

#[test]
fn f64_is_refused_with_a_hint() {
    let device = crate::device(1).unwrap();
    let k = device.kernels();
    let error = k.upload(HostData::F64(vec![1.0]), &Shape::from(1)).unwrap_err().to_string();
    assert_eq!(error, "upload: the cpu backend holds no f64; use f32, or the reference backend for f64");
    assert!(k.full(&Shape::from(3), DType::F64, 0.0).is_err());
    assert!(k.cast(&upload(&device, HostData::F32(vec![1.0])), DType::F64).is_err());
}

#[test]
fn ids_beyond_the_table_are_refused() {
    let device = crate::device(1).unwrap();
    let k = device.kernels();
    let table = upload(&device, HostData::F32(vec![0.0; 6])).viewed([3, 2]);
    let ids = upload(&device, HostData::U32(vec![0, 2, 3]));
    let error = k.gather_rows(&table, &ids).unwrap_err().to_string();
    assert!(error.starts_with("rows: id 3 at position 2 is beyond the 3 rows"), "{error}");
    assert!(k.scatter_add_rows(&table, &ids, 3).is_err());
    let smoothing = [("smoothing", 0.0)];
    assert!(CROSS_ENTROPY.run(k, Arguments::new(&[&table, &ids], &smoothing)).is_err());
    let one = upload(&device, HostData::F32(vec![0.0; 3]));
    assert!(CROSS_ENTROPY_BACKWARD.run(k, Arguments::new(&[&table, &ids, &one, &one], &smoothing)).is_err());
}

#[test]
fn arrays_of_other_backends_and_too_many_elements_are_refused() {
    let device = crate::device(1).unwrap();
    let foreign = upload(&assay_reference::device(), HostData::F32(vec![1.0]));
    assert!(device.kernels().unary(Unary::Neg, &foreign).is_err());
    assert!(device.kernels().download(&foreign).is_err());
    assert!(device.kernels().full(&Shape::from([usize::MAX, 2]), DType::F32, 0.0).is_err());
    assert!(device.kernels().upload(HostData::F32(vec![1.0]), &Shape::from(2)).is_err());
}

#[test]
fn a_device_says_what_it_is() {
    let info = crate::device(2).unwrap().info();
    assert_eq!((info.name.as_str(), info.threads), ("cpu", 2));
    assert_eq!(info.dtypes, [DType::F32, DType::Bf16, DType::U32, DType::I8]);
    assert_eq!(crate::device(0).unwrap().info().threads, 1);
}

#[test]
fn a_gelu_argument_of_another_shape_is_refused() {
    let device = crate::device(1).unwrap();
    let k = device.kernels();
    let floats = |shape: &[usize]| k.full(&Shape::from(shape), DType::F32, 0.5).unwrap();
    // Rows of the result have 5 elements: with rows of 20, the last ones would lie beyond its end.
    let (grad, weight) = (floats(&[8, 3]), floats(&[3, 5]));
    let back = |shape: &[usize]| LINEAR_GELU_BACKWARD.run(k, Arguments::new(&[&grad, &weight, &floats(shape)], &[]));
    for shape in [&[4, 20][..], &[2, 20], &[40, 1], &[40], &[4, 2, 10]] {
        let error = back(shape).unwrap_err().to_string();
        assert!(error.starts_with("linear_gelu_backward: z should have a row for each"), "{error}");
    }
    assert!(back(&[8, 5]).is_ok());
    assert!(back(&[2, 4, 5]).is_ok());
}

#[cfg(target_arch = "x86_64")]
#[test]
fn norms_of_denormals_do_not_depend_on_threads() {
    let norm = |threads: usize| {
        let device = crate::device(threads).unwrap();
        // Several spans, so that several threads add squares.
        let gradients = [1e-40f32; 5].map(|x| upload(&device, HostData::F32(vec![x; 50_000])));
        let found = device.kernels().clip(&gradients.each_ref(), Some(1.0)).unwrap();
        device.kernels().download(&found).unwrap()
    };
    for threads in [1, 2, 3] {
        assert_eq!(norm(threads), HostData::F32(vec![0.0, 1.0]), "{threads} threads");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn kernels_flush_denormals_and_give_the_mode_back() {
    for threads in [1, 2] {
        let device = crate::device(threads).unwrap();
        let x = upload(&device, HostData::F32(vec![1e-39; 64]));
        let y = device.kernels().unary(Unary::Scale(1e3), &x).unwrap();
        assert_eq!(device.kernels().download(&y).unwrap(), HostData::F32(vec![0.0; 64]));
        assert_ne!(std::hint::black_box(1e-39f32) * std::hint::black_box(1e3), 0.0);
    }
}
