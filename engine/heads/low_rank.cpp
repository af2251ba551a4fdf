#include "engine/heads/low_rank.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

namespace draftscope {
namespace {

/// Checks the artefact's rank parameter, "72/36" or "72" for all levels, against the tensors.
Status check_ranks(const HeadArtefact& artefact, const std::vector<int>& ranks) {
    const auto declared = artefact.info().parameters.find("rank");
    if (declared == artefact.info().parameters.end()) return {};
    const std::string found = fmt::format("{}", fmt::join(ranks, "/"));
    const bool alike = std::equal(ranks.begin() + 1, ranks.end(), ranks.begin());
    if (declared->second == found || (alike && declared->second == std::to_string(ranks.front()))) return {};
    return bad_input("{}: metadata has rank {}, but tensor 'down' has {}; the file is damaged",
                     artefact.path(), declared->second, found);
}

/// Loads the first `columns` columns of an up-projection, at most all.
Result<kernels::Matrix> load_up(kernels::Backend& backend, kernels::Precision precision,
                                const HeadArtefact& artefact, const std::string& name, int rows,
                                int columns) {
    const TensorInfo* tensor = artefact.tensors().find(name);
    if (tensor == nullptr || tensor->shape.size() != 2 || tensor->cols() <= columns)
        return artefact.matrix(backend, precision, name, rows, columns);
    if (tensor->rows() != rows || tensor->cols() > 1 << 20)
        return bad_input("{}: tensor '{}' has {} rows, expected {}", artefact.path(), name, tensor->rows(),
                         rows);
    return kernels::Matrix::pack(backend, precision, rows, columns, [&](int row, float* out) {
        std::vector<float> all(tensor->cols());
        artefact.tensors().read_row(*tensor, row, all.data());
        std::copy_n(all.begin(), columns, out);
    });
}

}  // namespace

kernels::Activations DownProjection::enqueue(kernels::Backend& backend, const kernels::Matrix& weights,
                                             kernels::Activations x, int rows, const float* bias,
                                             kernels::Activation activation) {
    kernels::MatmulOp product;
    product.weights = weights.device_matrix();
    product.x = x;
    product.rows = rows;
    product.y = result_.data();
    product.y_stride = weights.n();
    product.bias = bias;
    backend.matmul(product);
    kernels::CastOp cast;
    cast.x = product.y;
    cast.x_stride = cast.cols = weights.n();
    cast.rows = rows;
    cast.y = rounded_;
    cast.y_stride = cast.y_columns = kernels::padded_columns(weights.n());
    cast.activation = activation;
    backend.cast(cast);
    return rounded_;
}

Result<LowRankScorer> LowRankScorer::load(kernels::Backend& backend, const HeadWeights& weights,
                                          const HeadArtefact& artefact, const std::string& up_name) {
    LowRankScorer result;
    result.rows_ = weights.vocab;
    if (artefact.tensors().find("ids") != nullptr) {
        DS_ASSIGN(result.ids_, artefact.ascending_ids("ids"));
        result.rows_ = static_cast<int>(result.ids_.size());
    }
    const kernels::Precision precision = weights.lm_head->precision();
    const int levels = std::max({1, artefact.levels("down"), artefact.levels(up_name)});
    std::map<std::string, std::shared_ptr<const kernels::Matrix>> downs;
    std::map<std::pair<std::string, int>, std::shared_ptr<const kernels::Matrix>> ups;
    std::vector<int> ranks;
    for (int level = 0; level < levels; ++level) {
        const std::string down_name = artefact.at_level("down", level);
        auto& down = downs[down_name];
        if (down == nullptr) {
            DS_ASSIGN(auto matrix, artefact.matrix(backend, precision, down_name, -1, weights.hidden));
            down = std::make_shared<const kernels::Matrix>(std::move(matrix));
        }
        auto& up = ups[{artefact.at_level(up_name, level), down->n()}];
        if (up == nullptr) {
            DS_ASSIGN(auto matrix, load_up(backend, precision, artefact, artefact.at_level(up_name, level),
                                           result.rows_, down->n()));
            up = std::make_shared<const kernels::Matrix>(std::move(matrix));
        }
        result.levels_.push_back({down, up});
        if (level < std::max(1, artefact.levels("down"))) ranks.push_back(down->n());
    }
    DS_TRY(check_ranks(artefact, ranks));
    return result;
}

const LowRankScorer::Level& LowRankScorer::at(int level) const {
    return levels_[std::clamp(level, 0, static_cast<int>(levels_.size()) - 1)];
}

double LowRankScorer::flops_per_row(int level) const {
    const Level& factors = at(level);
    const auto flops = [](const kernels::Matrix& m) { return 2.0 * m.n() * m.k(); };
    return flops(*factors.down) + flops(*factors.up);
}

}  // namespace draftscope
