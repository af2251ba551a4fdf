#pragma once

/// Math of the row kernels on single vectors, over one vector type.
namespace draftscope::kernels {

template <typename V>
struct VecMath {
    using F = typename V::F;

    static F load_row(const float* x, int i, int n) {
        return n - i >= 16 ? V::load(x + i) : V::load_n(x + i, n - i);
    }
    static void store_row(float* y, int i, int n, F a) {
        if (n - i >= 16) {
            V::store(y + i, a);
        } else {
            V::store_n(y + i, a, n - i);
        }
    }

    /// Computes e^x to about 1e-7 relative. With x = n ln 2 + r and |r| <= ln 2 / 2, the result is a
    /// polynomial in r times 2^n. Below -87.3 (the smallest normal) exactly 0; above 88 clamped to e^88.
    static F exp(F x) {
        const F low = V::set1(-87.3f);
        const F clamped = V::min(V::max(x, low), V::set1(88.0f));
        const F n = V::round(V::mul(clamped, V::set1(1.44269504f)));
        // ln 2 in two parts, the first short enough for n * part to be exact.
        F r = V::mul_add(n, V::set1(-0.693359375f), clamped);
        r = V::mul_add(n, V::set1(2.12194440e-4f), r);
        F p = V::set1(1.9875691500e-4f);
        p = V::mul_add(p, r, V::set1(1.3981999507e-3f));
        p = V::mul_add(p, r, V::set1(8.3334519073e-3f));
        p = V::mul_add(p, r, V::set1(4.1665795894e-2f));
        p = V::mul_add(p, r, V::set1(1.6666665459e-1f));
        p = V::mul_add(p, r, V::set1(5.0000001201e-1f));
        p = V::add(V::mul_add(p, V::mul(r, r), r), V::set1(1.0f));
        return V::keep_from(x, low, V::mul(p, V::exp2_integral(n)));
    }

    /// Computes 2^x for x in [-127, 0] to about 1e-7 relative, at half the work of exp(); exactly 0 at -127.
    static F exp2_below_one(F x) {
        const F shift = V::set1(12582912.0f);
        const F shifted = V::add(x, shift);
        const F f = V::sub(x, V::sub(shifted, shift));
        F p = V::set1(1.5403530e-4f);
        p = V::mul_add(p, f, V::set1(1.3333558e-3f));
        p = V::mul_add(p, f, V::set1(9.6181291e-3f));
        p = V::mul_add(p, f, V::set1(5.5504109e-2f));
        p = V::mul_add(p, f, V::set1(2.4022651e-1f));
        p = V::mul_add(p, f, V::set1(6.9314718e-1f));
        p = V::mul_add(p, f, V::set1(1.0f));
        return V::times_exp2(p, shifted);
    }
};

}  // namespace draftscope::kernels
