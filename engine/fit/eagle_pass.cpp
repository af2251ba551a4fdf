#include "engine/fit/eagle_pass.h"

#include <algorithm>
#include <cmath>

#include "kernels/gemm.h"
#include "kernels/norm.h"

namespace draftscope::fit {
namespace {

using kernels::Operand;

/// y = x W^T, or y += x W^T with accumulate.
void linear(kernels::Exec& exec, Rows<const float> x, const Dense& weights, Dense& y,
            bool accumulate = false) {
    if (!accumulate) y.resize(x.rows, weights.rows);
    kernels::gemm(exec, Operand::plain, x, Operand::transposed, weights.view(), y.view(), accumulate);
}

/// Gradients of y = x W^T: d_weights += d_y^T x and, if d_x has rows, d_x = (or +=) d_y W.
void linear_back(kernels::Exec& exec, Rows<const float> x, const Dense& weights, Rows<const float> d_y,
                 Dense& d_weights, Dense* d_x, bool accumulate) {
    kernels::gemm(exec, Operand::transposed, d_y, Operand::plain, x, d_weights.view(), true);
    if (d_x == nullptr) return;
    if (!accumulate) d_x->resize(x.rows, x.cols);
    kernels::gemm(exec, Operand::plain, d_y, Operand::plain, weights.view(), d_x->view(), accumulate);
}

/// Gradients of y = norm(x) * weight: adds to d_weight and replaces d_x, which may be d_y.
void norm_back(Rows<const float> x, const Dense& weight, float eps, Rows<const float> d_y, Dense& d_weight,
               Rows<float> d_x) {
    const std::size_t n = x.cols;
    const float* w = weight.data.data();
    std::vector<double> sums(n);
    for (int r = 0; r < x.rows; ++r) {
        const auto in = x.row(r), dy = d_y.row(r);
        const auto dx = d_x.row(r);
        double squares = 0, along = 0;
        for (std::size_t j = 0; j < n; ++j) {
            squares += static_cast<double>(in[j]) * static_cast<double>(in[j]);
            along += static_cast<double>(dy[j]) * static_cast<double>(w[j]) * static_cast<double>(in[j]);
        }
        const double mean = squares / static_cast<double>(n) + static_cast<double>(eps);
        const double scale = 1.0 / std::sqrt(mean);
        const double pull = along * scale / (mean * static_cast<double>(n));
        for (std::size_t j = 0; j < n; ++j) {
            sums[j] += static_cast<double>(dy[j]) * static_cast<double>(in[j]) * scale;
            dx[j] = static_cast<float>(static_cast<double>(dy[j]) * static_cast<double>(w[j]) * scale -
                                       static_cast<double>(in[j]) * pull);
        }
    }
    for (std::size_t j = 0; j < n; ++j) d_weight.data[j] += static_cast<float>(sums[j]);
}

void add_to(const Dense& from, Dense& to) {
    for (std::size_t i = 0; i < to.size(); ++i) to.data[i] += from.data[i];
}

void zero_like(const Dense& like, Dense& out) {
    out = Dense(like.rows, like.cols);
}

Rows<float> columns(Dense& rows, int first, int count) {
    return {rows.data.data() + first, rows.rows, count, rows.cols};
}
Rows<const float> columns(const Dense& rows, int first, int count) {
    return {rows.data.data() + first, rows.rows, count, rows.cols};
}

void copy_rows(Rows<const float> from, Rows<float> to) {
    for (int r = 0; r < from.rows; ++r) std::copy_n(from.row_data(r), from.cols, to.row_data(r));
}

}  // namespace

std::vector<std::pair<std::string, Dense*>> EagleWeights::all() {
    std::vector<std::pair<std::string, Dense*>> list;
    const std::pair<const char*, Dense*> named[] = {{"fc", &fc},
                                                    {"fc_bias", &fc_bias},
                                                    {"q", &q},
                                                    {"k", &k},
                                                    {"v", &v},
                                                    {"o", &o},
                                                    {"gate", &gate},
                                                    {"up", &up},
                                                    {"down", &down},
                                                    {"post_norm", &post_norm},
                                                    {"input_norm", &input_norm},
                                                    {"hidden_norm", &hidden_norm},
                                                    {"final_norm", &final_norm}};
    for (const auto& [name, tensor] : named)
        if (tensor->rows > 0) list.emplace_back(name, tensor);
    return list;
}

EaglePass::EaglePass(const EagleShape& shape, EagleWeights& weights, const kernels::RopeTable& rope)
    : shape_(shape), weights_(weights), gradients_(weights), rope_(rope), back_rope_(rope) {
    for (float& s : back_rope_.sin) s = -s;
}

void EaglePass::rotate(kernels::Exec& exec, Dense& rows, int heads, int step, bool back) {
    std::vector<int> positions(rows.rows);
    for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int>(i) + step;
    kernels::rope(exec, rows.view(), heads, back ? back_rope_ : rope_, positions);
}

/// Computes h0 and the input of q, k and v.
void EaglePass::enter(kernels::Exec& exec, int step, Rows<const float> embeddings) {
    const int d = shape_.hidden;
    Step& s = steps_[step];
    const Rows<const float> e = embeddings.slice(step, slots_);
    s.hidden.resize(slots_, d);
    if (step > 0) {
        copy_rows(steps_[static_cast<std::size_t>(step) - 1].out.view(), s.hidden.view());
    } else if (shape_.eagle3) {
        linear(exec, features_, weights_.fc, s.hidden);
    } else {
        copy_rows(features_, s.hidden.view());
    }
    s.joined.resize(slots_, 2 * d);
    if (!shape_.eagle3) {
        copy_rows(e, columns(s.joined, 0, d));
        copy_rows(s.hidden.view(), columns(s.joined, d, d));
        linear(exec, s.joined.view(), weights_.fc, s.residual);
        for (int r = 0; r < slots_ && weights_.fc_bias.rows > 0; ++r)
            for (std::size_t j = 0; j < static_cast<std::size_t>(d); ++j)
                s.residual.row(r)[j] += weights_.fc_bias.data[j];
        return;
    }
    s.embedding.resize(slots_, d);
    copy_rows(e, s.embedding.view());
    kernels::rms_norm(exec, s.embedding.view(), weights_.input_norm.values(), shape_.norm_eps,
                      columns(s.joined, 0, d));
    kernels::rms_norm(exec, s.hidden.view(), weights_.hidden_norm.values(), shape_.norm_eps,
                      columns(s.joined, d, d));
    s.residual.resize(slots_, d);
    copy_rows(shape_.norm_before_residual ? columns(std::as_const(s.joined), d, d)
                                          : Rows<const float>(s.hidden.view()),
              s.residual.view());
}

void EaglePass::attend(kernels::Exec& exec, int step) {
    Step& s = steps_[step];
    const Rows<const float> x = shape_.eagle3 ? s.joined.view() : s.residual.view();
    linear(exec, x, weights_.q, s.q);
    linear(exec, x, weights_.k, s.k);
    linear(exec, x, weights_.v, s.v);
    rotate(exec, s.q, shape_.heads, step, false);
    rotate(exec, s.k, shape_.kv_heads, step, false);
    const int hd = shape_.head_dim, group = shape_.heads / shape_.kv_heads;
    const float scale = 1.0f / std::sqrt(static_cast<float>(hd));
    s.weights.resize(shape_.heads * slots_, slots_ + step);
    s.mixed.resize(slots_, shape_.heads * hd);
    for (int h = 0; h < shape_.heads; ++h) {
        const Rows<const float> q = columns(std::as_const(s.q), h * hd, hd);
        const int kv = h / group * hd;
        const Rows<float> w(s.weights.row(h * slots_).data(), slots_, slots_, s.weights.cols);
        kernels::gemm(exec, Operand::plain, q, Operand::transposed,
                      columns(std::as_const(steps_[0].k), kv, hd), w);
        for (int r = 0; r < slots_; ++r) {
            const auto row = s.weights.row(h * slots_ + r);
            for (int j = 1; j <= step; ++j) {
                const auto key = columns(std::as_const(steps_[j].k), kv, hd).row(r);
                float dot = 0;
                for (std::size_t i = 0; i < key.size(); ++i) dot += q.row(r)[i] * key[i];
                row[slots_ + j - 1] = dot;
            }
            const auto seen = static_cast<std::size_t>(r) + 1, all = static_cast<std::size_t>(slots_);
            float top = row[0];
            for (std::size_t i = 0; i < row.size(); ++i)
                if (i < seen || i >= all) top = std::max(top, row[i]);
            double sum = 0;
            for (std::size_t i = 0; i < row.size(); ++i) {
                row[i] = i < seen || i >= all ? std::exp((row[i] - top) * scale) : 0.0f;
                sum += static_cast<double>(row[i]);
            }
            for (float& value : row) value = static_cast<float>(static_cast<double>(value) / sum);
        }
        const Rows<float> mixed = columns(s.mixed, h * hd, hd);
        kernels::gemm(exec, Operand::plain, w, Operand::plain, columns(std::as_const(steps_[0].v), kv, hd),
                      mixed);
        for (int j = 1; j <= step; ++j) {
            const Rows<const float> v = columns(std::as_const(steps_[j].v), kv, hd);
            for (int r = 0; r < slots_; ++r) {
                const float weight = s.weights.row(h * slots_ + r)[slots_ + j - 1];
                for (std::size_t i = 0; i < static_cast<std::size_t>(hd); ++i)
                    mixed.row(r)[i] += weight * v.row(r)[i];
            }
        }
    }
}

void EaglePass::leave(kernels::Exec& exec, int step) {
    Step& s = steps_[step];
    s.after_attention = s.residual;
    linear(exec, s.mixed.view(), weights_.o, s.after_attention, true);
    s.normed.resize(slots_, shape_.hidden);
    kernels::rms_norm(exec, s.after_attention.view(), weights_.post_norm.values(), shape_.norm_eps,
                      s.normed.view());
    linear(exec, s.normed.view(), weights_.gate, s.gate);
    linear(exec, s.normed.view(), weights_.up, s.up);
    s.product.resize(slots_, shape_.ffn);
    for (std::size_t i = 0; i < s.product.size(); ++i) {
        const float g = s.gate.data[i];
        s.product.data[i] = g / (1.0f + std::exp(-g)) * s.up.data[i];
    }
    s.out = s.after_attention;
    linear(exec, s.product.view(), weights_.down, s.out, true);
    if (!shape_.eagle3) {
        s.head = s.out;
        return;
    }
    s.head.resize(slots_, shape_.hidden);
    kernels::rms_norm(exec, s.out.view(), weights_.final_norm.values(), shape_.norm_eps, s.head.view());
}

void EaglePass::forward(kernels::Exec& exec, Rows<const float> features, Rows<const float> embeddings,
                        int steps) {
    features_ = features;
    slots_ = features.rows;
    steps_.resize(steps);
    for (int step = 0; step < steps; ++step) {
        enter(exec, step, embeddings);
        attend(exec, step);
        leave(exec, step);
    }
}

/// Gradients of a step's attention output and of h0 from that of its output.
void EaglePass::back_leave(kernels::Exec& exec, int step, Dense& d_out, Dense& d_after) {
    Step& s = steps_[step];
    d_after = d_out;
    Dense d_product;
    linear_back(exec, s.product.view(), weights_.down, d_out.view(), gradients_.down, &d_product, false);
    Dense d_gate(slots_, shape_.ffn), d_up(slots_, shape_.ffn);
    for (std::size_t i = 0; i < d_product.size(); ++i) {
        const float g = s.gate.data[i], sigmoid = 1.0f / (1.0f + std::exp(-g));
        d_up.data[i] = d_product.data[i] * g * sigmoid;
        d_gate.data[i] = d_product.data[i] * s.up.data[i] * sigmoid * (1.0f + g * (1.0f - sigmoid));
    }
    Dense d_normed;
    linear_back(exec, s.normed.view(), weights_.gate, d_gate.view(), gradients_.gate, &d_normed, false);
    linear_back(exec, s.normed.view(), weights_.up, d_up.view(), gradients_.up, &d_normed, true);
    norm_back(s.after_attention.view(), weights_.post_norm, shape_.norm_eps, d_normed.view(),
              gradients_.post_norm, d_normed.view());
    add_to(d_normed, d_after);
}

/// Adds to the gradients of this step's queries and of every key and value that it attended to.
void EaglePass::back_attend(kernels::Exec& exec, int step, const Dense& d_mixed) {
    Step& s = steps_[step];
    const int hd = shape_.head_dim, group = shape_.heads / shape_.kv_heads;
    const float scale = 1.0f / std::sqrt(static_cast<float>(hd));
    Dense d_w(slots_, slots_ + step);
    for (int h = 0; h < shape_.heads; ++h) {
        const int kv = h / group * hd;
        const Rows<const float> d_out = columns(d_mixed, h * hd, hd),
                                q = columns(std::as_const(s.q), h * hd, hd);
        const Rows<const float> w(s.weights.row(h * slots_).data(), slots_, slots_, s.weights.cols);
        const Rows<float> d_prefix(d_w.data.data(), slots_, slots_, d_w.cols);
        kernels::gemm(exec, Operand::plain, d_out, Operand::transposed,
                      columns(std::as_const(steps_[0].v), kv, hd), d_prefix);
        kernels::gemm(exec, Operand::transposed, w, Operand::plain, d_out, columns(d_v_[0], kv, hd), true);
        for (int r = 0; r < slots_; ++r) {
            const auto weights = std::as_const(s.weights).row(h * slots_ + r);
            const auto row = d_w.row(r);
            for (int j = 1; j <= step; ++j) {
                const auto value = columns(std::as_const(steps_[j].v), kv, hd).row(r);
                const auto d_value = columns(d_v_[j], kv, hd).row(r);
                const std::size_t at = slots_ + j - 1;
                float dot = 0;
                for (std::size_t i = 0; i < value.size(); ++i) {
                    dot += d_out.row(r)[i] * value[i];
                    d_value[i] += weights[at] * d_out.row(r)[i];
                }
                row[at] = dot;
            }
            double mean = 0;
            for (std::size_t i = 0; i < row.size(); ++i)
                mean += static_cast<double>(row[i]) * static_cast<double>(weights[i]);
            for (std::size_t i = 0; i < row.size(); ++i)
                row[i] = weights[i] * (row[i] - static_cast<float>(mean)) * scale;
            const auto d_query = columns(d_q_[step], h * hd, hd).row(r);
            for (int j = 1; j <= step; ++j) {
                const auto key = columns(std::as_const(steps_[j].k), kv, hd).row(r);
                const auto d_key = columns(d_k_[j], kv, hd).row(r);
                const float d = row[slots_ + j - 1];
                for (std::size_t i = 0; i < key.size(); ++i) {
                    d_query[i] += d * key[i];
                    d_key[i] += d * q.row(r)[i];
                }
            }
        }
        kernels::gemm(exec, Operand::plain, d_prefix, Operand::plain,
                      columns(std::as_const(steps_[0].k), kv, hd), columns(d_q_[step], h * hd, hd), true);
        kernels::gemm(exec, Operand::transposed, d_prefix, Operand::plain, q, columns(d_k_[0], kv, hd), true);
    }
}

/// Gradient of the input of q, k and v.
void EaglePass::back_project(kernels::Exec& exec, int step, Dense& d_input) {
    Step& s = steps_[step];
    const std::size_t i = step;
    rotate(exec, d_q_[i], shape_.heads, step, true);
    rotate(exec, d_k_[i], shape_.kv_heads, step, true);
    const Rows<const float> x = shape_.eagle3 ? s.joined.view() : s.residual.view();
    linear_back(exec, x, weights_.q, d_q_[i].view(), gradients_.q, &d_input, false);
    linear_back(exec, x, weights_.k, d_k_[i].view(), gradients_.k, &d_input, true);
    linear_back(exec, x, weights_.v, d_v_[i].view(), gradients_.v, &d_input, true);
}

void EaglePass::backward(kernels::Exec& exec, std::span<const Dense> d_head) {
    for (const auto& [name, tensor] : gradients_.all())
        std::fill(tensor->data.begin(), tensor->data.end(), 0.0f);
    const std::size_t count = steps_.size();
    const int d = shape_.hidden;
    d_q_.assign(count, {});
    d_k_.assign(count, {});
    d_v_.assign(count, {});
    for (std::size_t i = 0; i < count; ++i) {
        zero_like(steps_[i].q, d_q_[i]);
        zero_like(steps_[i].k, d_k_[i]);
        zero_like(steps_[i].v, d_v_[i]);
    }
    Dense d_recycled(slots_, d);  // gradient of the output that is the next step's input
    for (int step = static_cast<int>(count) - 1; step >= 0; --step) {
        Step& s = steps_[step];
        Dense d_out = d_head[step];
        if (shape_.eagle3) {
            norm_back(s.out.view(), weights_.final_norm, shape_.norm_eps, d_out.view(), gradients_.final_norm,
                      d_out.view());
        }
        add_to(d_recycled, d_out);
        Dense d_residual, d_mixed, d_input;
        back_leave(exec, step, d_out, d_residual);
        linear_back(exec, s.mixed.view(), weights_.o, d_residual.view(), gradients_.o, &d_mixed, false);
        back_attend(exec, step, d_mixed);
        back_project(exec, step, d_input);
        if (!shape_.eagle3) {
            add_to(d_input, d_residual);
            Dense d_joined;
            linear_back(exec, s.joined.view(), weights_.fc, d_residual.view(), gradients_.fc, &d_joined,
                        false);
            for (int r = 0; r < slots_ && gradients_.fc_bias.rows > 0; ++r)
                for (std::size_t j = 0; j < static_cast<std::size_t>(d); ++j)
                    gradients_.fc_bias.data[j] += d_residual.row(r)[j];
            copy_rows(columns(std::as_const(d_joined), d, d), d_recycled.view());
            continue;
        }
        Dense d_embedding(slots_, d);
        if (shape_.norm_before_residual) {
            for (int r = 0; r < slots_; ++r)
                for (std::size_t j = 0; j < static_cast<std::size_t>(d); ++j)
                    d_input.row(r)[d + j] += d_residual.row(r)[j];
        }
        norm_back(s.embedding.view(), weights_.input_norm, shape_.norm_eps,
                  columns(std::as_const(d_input), 0, d), gradients_.input_norm, d_embedding.view());
        norm_back(s.hidden.view(), weights_.hidden_norm, shape_.norm_eps,
                  columns(std::as_const(d_input), d, d), gradients_.hidden_norm, d_recycled.view());
        if (!shape_.norm_before_residual) add_to(d_residual, d_recycled);
        if (step == 0)
            linear_back(exec, features_, weights_.fc, d_recycled.view(), gradients_.fc, nullptr, false);
    }
}

std::vector<Parameter> EaglePass::parameters() {
    std::vector<Parameter> list;
    const auto values = weights_.all();
    const auto gradients = gradients_.all();
    for (std::size_t i = 0; i < values.size(); ++i)
        list.push_back({values[i].second->values(), gradients[i].second->values()});
    return list;
}

}  // namespace draftscope::fit
