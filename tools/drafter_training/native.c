/* What lies between the matrix products of a llama layer, for CPUs with AVX-512 BF16: torch's own operators take longer
   over these rows than over the products. Compiled on first use; where that fails, target.py does the same in torch.
   bf16 is uint16_t; matrices are row-major without gaps. */
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

static inline __m512 widen(__m256i bf16) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16)); }

static void one_head(const uint16_t* q, const uint16_t* keys, const uint16_t* values, int length, int group, int dim, float scale,
                     float* scores, uint16_t* out) {
    for (int t = 0; t < length; ++t) {
        const uint16_t* key = keys + (int64_t)t * dim;
        for (int g = 0; g < group; ++g) {
            __m512 sum = _mm512_setzero_ps();
            for (int d = 0; d < dim; d += 32)
                sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_loadu_si512(q + g * dim + d), (__m512bh)_mm512_loadu_si512(key + d));
            scores[(int64_t)g * length + t] = _mm512_reduce_add_ps(sum) * scale;
        }
    }
    for (int g = 0; g < group; ++g) {
        float* row = scores + (int64_t)g * length;
        float top = row[0], total = 0;
        for (int t = 1; t < length; ++t) top = row[t] > top ? row[t] : top;
        for (int t = 0; t < length; ++t) row[t] = expf(row[t] - top);
        for (int t = 0; t < length; ++t) total += row[t];
        for (int t = 0; t < length; ++t) row[t] /= total;
    }
    for (int d = 0; d < dim; d += 32) {
        for (int g = 0; g < group; ++g) {
            const float* row = scores + (int64_t)g * length;
            __m512 low = _mm512_setzero_ps(), high = _mm512_setzero_ps();
            for (int t = 0; t < length; ++t) {
                const __m512 p = _mm512_set1_ps(row[t]);
                const uint16_t* value = values + (int64_t)t * dim + d;
                low = _mm512_fmadd_ps(p, widen(_mm256_loadu_si256((const __m256i*)value)), low);
                high = _mm512_fmadd_ps(p, widen(_mm256_loadu_si256((const __m256i*)(value + 16))), high);
            }
            _mm512_storeu_si512(out + g * dim + d, (__m512i)_mm512_cvtne2ps_pbh(high, low));
        }
    }
}


static inline uint16_t narrow(float x) {
    union { float f; uint32_t u; } bits = {x};
    return (uint16_t)((bits.u + 0x7fff + ((bits.u >> 16) & 1)) >> 16);
}

static inline float wide(uint16_t x) {
    union { uint32_t u; float f; } bits = {(uint32_t)x << 16};
    return bits.f;
}

static void rope(const uint16_t* in, const float* cosine, const float* sine, int dim, uint16_t* out) {
    const int half = dim / 2;
    for (int d = 0; d < half; ++d) {
        const float a = wide(in[d]), b = wide(in[d + half]);
        out[d] = narrow(a * cosine[d] - b * sine[d]);
        out[d + half] = narrow(b * cosine[d + half] + a * sine[d + half]);
    }
}

/* One new token per sequence: qkv [batch][(heads + 2 kv heads) dim] as the projection gives it, cosine and sine
   [batch][dim], keys and values [batch][kv heads][capacity][dim] with `lengths` filled; the new ones are stored at
   lengths[b] and attended to. out [batch][heads dim]. Not 0 = out of memory. */
int decode_attention(const uint16_t* qkv, const float* cosine, const float* sine, uint16_t* keys, uint16_t* values, const int64_t* lengths,
                     uint16_t* out, int batch, int kv_heads, int group, int dim, int64_t capacity, float scale) {
    int64_t longest = 0;
    for (int b = 0; b < batch; ++b) longest = lengths[b] >= longest ? lengths[b] + 1 : longest;
    float* scores = malloc(sizeof(float) * (size_t)group * (size_t)longest);
    uint16_t* q = malloc(sizeof(uint16_t) * (size_t)group * (size_t)dim);
    const int heads = kv_heads * group, width = (heads + 2 * kv_heads) * dim;
    for (int b = 0; b < batch && scores && q; ++b) {
        const uint16_t* row = qkv + (int64_t)b * width;
        const float *c = cosine + (int64_t)b * dim, *s = sine + (int64_t)b * dim;
        for (int h = 0; h < kv_heads; ++h) {
            uint16_t* k = keys + ((int64_t)b * kv_heads + h) * capacity * dim;
            uint16_t* v = values + ((int64_t)b * kv_heads + h) * capacity * dim;
            rope(row + (heads + h) * dim, c, s, dim, k + lengths[b] * dim);
            for (int d = 0; d < dim; ++d) v[lengths[b] * dim + d] = row[(heads + kv_heads + h) * dim + d];
            for (int g = 0; g < group; ++g) rope(row + (h * group + g) * dim, c, s, dim, q + g * dim);
            one_head(q, k, v, (int)lengths[b] + 1, group, dim, scale, scores, out + ((int64_t)b * heads + h * group) * dim);
        }
    }
    const int failed = !scores || !q;
    free(scores);
    free(q);
    return failed;
}

/* x += delta (unless NULL), then out = x / rms(x) * weight. x [rows][width] f32. */
void add_rms(float* x, const uint16_t* delta, const float* weight, uint16_t* out, int64_t rows, int width, float eps) {
    for (int64_t r = 0; r < rows; ++r) {
        float* row = x + r * width;
        if (delta)
            for (int i = 0; i < width; ++i) row[i] += wide(delta[r * width + i]);
        float squares = 0;
        for (int i = 0; i < width; ++i) squares += row[i] * row[i];
        const float factor = 1.0f / sqrtf(squares / (float)width + eps);
        for (int i = 0; i < width; ++i) out[r * width + i] = narrow(row[i] * factor * weight[i]);
    }
}

/* gate_up [rows][2 width] -> silu(gate) * up, [rows][width]. */
void swiglu(const uint16_t* gate_up, uint16_t* out, int64_t rows, int width) {
    for (int64_t r = 0; r < rows; ++r) {
        const uint16_t *gate = gate_up + r * 2 * width, *up = gate + width;
        for (int i = 0; i < width; ++i) {
            const float g = wide(gate[i]);
            out[r * width + i] = narrow(g / (1.0f + expf(-g)) * wide(up[i]));
        }
    }
}

/* keys and queries of whole texts: in place rope over [rows][stride], `count` heads of `dim` each, cosine and sine by row. */
void rope_rows(uint16_t* x, const float* cosine, const float* sine, int64_t rows, int64_t stride, int count, int dim) {
    for (int64_t r = 0; r < rows; ++r)
        for (int h = 0; h < count; ++h) rope(x + r * stride + h * dim, cosine + r * dim, sine + r * dim, dim, x + r * stride + h * dim);
}
