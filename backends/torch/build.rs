//! Tells the tests of this crate where libtorch lies, so that they run without `LD_LIBRARY_PATH`.

fn main() {
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    let wanted = std::env::var_os("CARGO_FEATURE_LIBTORCH").is_some();
    if let (true, Ok(folder)) = (wanted, std::env::var("LIBTORCH")) {
        println!("cargo:rustc-link-arg-tests=-Wl,-rpath,{folder}/lib");
    }
}
