#include "kernels/rope.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/numel.h"

namespace draftscope::kernels {

void RopeTable::extend(int min_positions) {
    const int first = rows(), half = head_dim / 2;
    if (min_positions <= first || first >= positions) return;
    const std::int64_t blocks = (std::int64_t{min_positions} + block - 1) / block;
    const int last = static_cast<int>(std::min<std::int64_t>(blocks * block, positions));
    cos.resize(numel(last, half));
    sin.resize(numel(last, half));
    for (int p = first; p < last; ++p) {
        for (int j = 0; j < half; ++j) {
            const std::size_t at = numel(p, half) + j;
            cos[at] = static_cast<float>(std::cos(p * frequencies[j]) * scale);
            sin[at] = static_cast<float>(std::sin(p * frequencies[j]) * scale);
        }
    }
}

RopeTable make_rope_table(int head_dim, float theta, int positions, std::span<const float> divisors,
                          float scale) {
    assert(head_dim % 2 == 0 && head_dim > 0);
    const int half = head_dim / 2;
    assert(divisors.empty() || static_cast<int>(divisors.size()) == half);
    RopeTable table;
    table.head_dim = head_dim;
    table.positions = positions;
    table.scale = scale;
    for (int j = 0; j < half; ++j) {
        const double frequency = std::pow(static_cast<double>(theta), -2.0 * j / head_dim);
        table.frequencies.push_back(divisors.empty() ? frequency
                                                     : frequency / static_cast<double>(divisors[j]));
    }
    table.extend(1);
    return table;
}

bool DeviceRope::load(Backend& backend, RopeTable& table) {
    table_ = &table;
    if (backend.is_host()) return true;
    table.extend(table.positions);
    const std::size_t bytes = table.cos.size() * sizeof(float);
    if (!on_device_.reserve(backend, 2 * bytes)) return false;
    backend.upload(on_device_.as<float>(), table.cos.data(), bytes);
    backend.upload(on_device_.as<float>() + table.cos.size(), table.sin.data(), bytes);
    return true;
}

}  // namespace draftscope::kernels
