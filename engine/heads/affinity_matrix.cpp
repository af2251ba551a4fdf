#include "engine/heads/affinity_matrix.h"

#include <cmath>

namespace draftscope {
namespace {

/// Returns what each token gets, in the order of the tokens that give it.
SparseRows transposed(const SparseRows& rows) {
    const std::size_t vocab = rows.first.size() - 1;
    SparseRows out;
    out.first.assign(vocab + 1, 0);
    for (const TokenId to : rows.tokens) ++out.first[static_cast<std::size_t>(to) + 1];
    for (std::size_t t = 0; t < vocab; ++t) out.first[t + 1] += out.first[t];
    out.tokens.resize(rows.tokens.size());
    out.weights.resize(rows.tokens.size());
    std::vector<std::int32_t> next(out.first.begin(), out.first.end() - 1);
    for (std::size_t t = 0; t < vocab; ++t)
        for (std::int32_t i = rows.first[t]; i < rows.first[t + 1]; ++i) {
            const std::int32_t to = next[rows.tokens[i]]++;
            out.tokens[to] = static_cast<TokenId>(t);
            out.weights[to] = rows.weights[i];
        }
    return out;
}

}  // namespace

bool DeviceSparseRows::upload(kernels::Backend& backend, const SparseRows& rows) {
    return first.upload_exact(backend, rows.first) && tokens.upload_exact(backend, rows.tokens) &&
           weights.upload_exact(backend, rows.weights);
}

bool DeviceAffinity::upload(kernels::Backend& backend) {
    if (!is_uploaded_)
        is_uploaded_ = sources_.upload(backend, matrix_.sources) &&
                       (!backend.is_host() || targets_.upload(backend, matrix_.targets));
    return is_uploaded_;
}

void DeviceAffinity::set_matrix(kernels::RedistributeOp& op) const {
    op.first = sources_.first.data();
    op.sources = sources_.tokens.data();
    op.weights = sources_.weights.data();
    op.target_first = targets_.first.data();
    op.targets = targets_.tokens.data();
    op.target_weights = targets_.weights.data();
}

void DeviceAffinity::set_matrix(kernels::ReachableTokensOp& op) const {
    op.first = sources_.first.data();
    op.sources = sources_.tokens.data();
}

Result<AffinityMatrix> AffinityMatrix::load(const HeadArtefact& artefact, int vocab) {
    std::vector<TokenId> ids;
    if (artefact.tensors().find("ids") != nullptr) {
        DS_ASSIGN(ids, artefact.ascending_ids("ids"));
    } else {
        for (TokenId id = 0; id < vocab; ++id) ids.push_back(id);
    }
    const TensorInfo* weights = artefact.tensors().find("weights");
    DS_ASSIGN(const auto neighbours, artefact.tensors().read_integers("neighbours"));
    if (weights == nullptr || weights->shape.size() != 2 || weights->cols() < 1 || weights->cols() > vocab ||
        weights->rows() != static_cast<std::int64_t>(ids.size()) ||
        neighbours.size() != ids.size() * weights->cols())
        return bad_input("{}: tensors 'neighbours' and 'weights' must both have shape [{}, n]",
                         artefact.path(), ids.size());
    AffinityMatrix result;
    const std::size_t width = result.width = weights->cols();
    SparseRows& out = result.targets;
    const auto add = [&](std::int64_t to, double weight) {
        out.tokens.push_back(static_cast<TokenId>(to));
        out.weights.push_back(static_cast<float>(weight));
    };
    std::vector<float> values(width);
    std::size_t next = 0;
    for (TokenId token = 0; token < vocab; ++token) {
        out.first.push_back(static_cast<std::int32_t>(out.tokens.size()));
        if (next == ids.size() || ids[next] != token) {
            add(token, 1.0);
            continue;
        }
        artefact.tensors().read_row(*weights, static_cast<std::int64_t>(next), values.data());
        double sum = 0;
        for (const float value : values) {
            if (!(value >= 0))
                return bad_input(
                    "{}: tensor 'weights' contains {} for "
                    "token {}, expected a value of at least 0",
                    artefact.path(), value, token);
            sum += static_cast<double>(value);
        }
        if (!(std::abs(sum - 1) < 0.01))
            return bad_input("{}: tensor 'weights' sums to {} for token {}, expected 1", artefact.path(), sum,
                             token);
        for (std::size_t i = 0; i < width; ++i) {
            const std::int64_t to = neighbours[next * width + i];
            if (to < 0 || to >= vocab)
                return bad_input(
                    "{}: tensor 'neighbours' contains {} "
                    "for token {}, which is not a token id",
                    artefact.path(), to, token);
            if (values[i] > 0) add(to, static_cast<double>(values[i]) / sum);
        }
        ++next;
    }
    out.first.push_back(static_cast<std::int32_t>(out.tokens.size()));
    result.sources = transposed(out);
    return result;
}

}  // namespace draftscope
