//! Arithmetic on a number or on a vector of AVX-512 or AVX2, for code that the compiler does not vectorise by itself: look-up in a table.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m256, __m256i, _mm256_and_ps, _mm256_blendv_ps, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cmp_ps,
    _mm256_cmpgt_epi32, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_loadu_ps, _mm256_maskload_ps, _mm256_maskstore_ps,
    _mm256_min_ps, _mm256_mul_ps, _mm256_permutevar8x32_ps, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setr_epi32,
    _mm256_setzero_ps, _mm256_slli_epi32, _mm256_storeu_ps, _mm256_sub_ps,
};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m512, _CMP_GT_OQ, _mm512_abs_ps, _mm512_castps_si512, _mm512_cmp_ps_mask, _mm512_fmadd_ps, _mm512_fnmadd_ps,
    _mm512_loadu_ps, _mm512_mask_storeu_ps, _mm512_mask_sub_ps, _mm512_maskz_loadu_ps, _mm512_min_ps, _mm512_mul_ps,
    _mm512_permutexvar_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps, _mm512_sub_ps,
};

/// A number, or a vector of them: what is done here is written once for both, and gives the same bits.
pub(crate) trait Lanes: Copy {
    /// How many numbers.
    const COUNT: usize;
    /// The first `count` numbers at a place. The rest is 0.
    ///
    /// # Safety
    ///
    /// The place must be valid for reads of so many.
    unsafe fn load_first(at: *const f32, count: usize) -> Self;
    /// Puts the first `count` numbers to a place.
    ///
    /// # Safety
    ///
    /// The place must be valid for writes of so many.
    unsafe fn store_first(self, at: *mut f32, count: usize);
    fn splat(x: f32) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    /// self b + c, rounded once.
    fn mul_add(self, b: Self, c: Self) -> Self;
    /// c - self b, rounded once.
    fn mul_sub_from(self, b: Self, c: Self) -> Self;
    fn abs(self) -> Self;
    /// At most `limit`; NaN stays.
    fn at_most(self, limit: Self) -> Self;
    /// The element of `row` whose number the low bits are.
    fn look_up(self, row: &[f32; 16]) -> Self;
    /// 1 - self where x is above 0, elsewhere self.
    fn mirror_if_positive(self, x: Self) -> Self;
}

impl Lanes for f32 {
    const COUNT: usize = 1;

    #[inline(always)]
    unsafe fn load_first(at: *const f32, _: usize) -> f32 {
        // SAFETY: as the caller says; there is one number at least.
        unsafe { *at }
    }

    #[inline(always)]
    unsafe fn store_first(self, at: *mut f32, _: usize) {
        // SAFETY: as above.
        unsafe { *at = self }
    }

    #[inline(always)]
    fn splat(x: f32) -> f32 {
        x
    }

    #[inline(always)]
    fn sub(self, b: f32) -> f32 {
        self - b
    }

    #[inline(always)]
    fn mul(self, b: f32) -> f32 {
        self * b
    }

    #[inline(always)]
    fn mul_add(self, b: f32, c: f32) -> f32 {
        f32::mul_add(self, b, c)
    }

    #[inline(always)]
    fn mul_sub_from(self, b: f32, c: f32) -> f32 {
        f32::mul_add(-self, b, c)
    }

    #[inline(always)]
    fn abs(self) -> f32 {
        f32::abs(self)
    }

    #[inline(always)]
    fn at_most(self, limit: f32) -> f32 {
        if limit < self { limit } else { self }
    }

    #[inline(always)]
    fn look_up(self, row: &[f32; 16]) -> f32 {
        row[(self.to_bits() & 15) as usize]
    }

    #[inline(always)]
    fn mirror_if_positive(self, x: f32) -> f32 {
        if x > 0.0 { 1.0 - self } else { self }
    }
}

/// Vectors are made and used in functions for AVX-512 alone.
#[cfg(target_arch = "x86_64")]
impl Lanes for __m512 {
    const COUNT: usize = 16;

    #[inline(always)]
    unsafe fn load_first(at: *const f32, count: usize) -> __m512 {
        // SAFETY: as the caller says; a masked load touches the numbers of the mask only.
        unsafe {
            match count {
                16 => _mm512_loadu_ps(at),
                _ => _mm512_maskz_loadu_ps((1 << count) - 1, at),
            }
        }
    }

    #[inline(always)]
    unsafe fn store_first(self, at: *mut f32, count: usize) {
        // SAFETY: as above.
        unsafe {
            match count {
                16 => _mm512_storeu_ps(at, self),
                _ => _mm512_mask_storeu_ps(at, (1 << count) - 1, self),
            }
        }
    }

    #[inline(always)]
    fn splat(x: f32) -> __m512 {
        // SAFETY: the machine has AVX-512, here and below.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn sub(self, b: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_sub_ps(self, b) }
    }

    #[inline(always)]
    fn mul(self, b: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_mul_ps(self, b) }
    }

    #[inline(always)]
    fn mul_add(self, b: __m512, c: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_fmadd_ps(self, b, c) }
    }

    #[inline(always)]
    fn mul_sub_from(self, b: __m512, c: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_fnmadd_ps(self, b, c) }
    }

    #[inline(always)]
    fn abs(self) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_abs_ps(self) }
    }

    #[inline(always)]
    fn at_most(self, limit: __m512) -> __m512 {
        // SAFETY: as above. Of a NaN and a number, it is the second operand.
        unsafe { _mm512_min_ps(limit, self) }
    }

    #[inline(always)]
    fn look_up(self, row: &[f32; 16]) -> __m512 {
        // SAFETY: as above; the row is as long as a vector.
        unsafe { _mm512_permutexvar_ps(_mm512_castps_si512(self), _mm512_loadu_ps(row.as_ptr())) }
    }

    #[inline(always)]
    fn mirror_if_positive(self, x: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe {
            let above = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, _mm512_setzero_ps());
            _mm512_mask_sub_ps(self, above, _mm512_set1_ps(1.0), self)
        }
    }
}

/// All bits of the first lanes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn first_lanes(count: usize) -> __m256i {
    // SAFETY: the machine has AVX2, here and below.
    unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
}

/// Vectors are made and used in functions for AVX2 with FMA alone.
#[cfg(target_arch = "x86_64")]
impl Lanes for __m256 {
    const COUNT: usize = 8;

    #[inline(always)]
    unsafe fn load_first(at: *const f32, count: usize) -> __m256 {
        // SAFETY: as the caller says; a masked load touches the numbers of the mask only.
        unsafe {
            match count {
                8 => _mm256_loadu_ps(at),
                _ => _mm256_maskload_ps(at, first_lanes(count)),
            }
        }
    }

    #[inline(always)]
    unsafe fn store_first(self, at: *mut f32, count: usize) {
        // SAFETY: as above.
        unsafe {
            match count {
                8 => _mm256_storeu_ps(at, self),
                _ => _mm256_maskstore_ps(at, first_lanes(count), self),
            }
        }
    }

    #[inline(always)]
    fn splat(x: f32) -> __m256 {
        // SAFETY: the machine has AVX2 and FMA, here and below.
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    fn sub(self, b: __m256) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_sub_ps(self, b) }
    }

    #[inline(always)]
    fn mul(self, b: __m256) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_mul_ps(self, b) }
    }

    #[inline(always)]
    fn mul_add(self, b: __m256, c: __m256) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_fmadd_ps(self, b, c) }
    }

    #[inline(always)]
    fn mul_sub_from(self, b: __m256, c: __m256) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_fnmadd_ps(self, b, c) }
    }

    #[inline(always)]
    fn abs(self) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_and_ps(self, _mm256_castsi256_ps(_mm256_set1_epi32(i32::MAX))) }
    }

    #[inline(always)]
    fn at_most(self, limit: __m256) -> __m256 {
        // SAFETY: as above. Of a NaN and a number, it is the second operand.
        unsafe { _mm256_min_ps(limit, self) }
    }

    #[inline(always)]
    fn look_up(self, row: &[f32; 16]) -> __m256 {
        // SAFETY: as above; the row is as long as two vectors. Three bits of a number choose in each half, the fourth, moved to the
        // sign, between them.
        unsafe {
            let index = _mm256_castps_si256(self);
            let low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(row.as_ptr()), index);
            let high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(row.as_ptr().add(8)), index);
            _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index)))
        }
    }

    #[inline(always)]
    fn mirror_if_positive(self, x: __m256) -> __m256 {
        // SAFETY: as above.
        unsafe {
            let above = _mm256_cmp_ps::<_CMP_GT_OQ>(x, _mm256_setzero_ps());
            _mm256_blendv_ps(self, _mm256_sub_ps(_mm256_set1_ps(1.0), self), above)
        }
    }
}
