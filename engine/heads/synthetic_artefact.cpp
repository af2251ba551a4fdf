#include "engine/heads/synthetic_artefact.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "engine/formats/architecture.h"
#include "engine/formats/synthetic_model.h"
#include "engine/heads/factories.h"

namespace draftscope {
namespace {

/// Random matrices and generated integers as one weight source.
class GeneratedTensors final : public WeightSource {
  public:
    explicit GeneratedTensors(std::string path) : path_(std::move(path)) {}

    void add_integers(const std::string& name, std::vector<std::int64_t> values) {
        const auto count = static_cast<std::int64_t>(values.size());
        infos_[name] = {name, "I32", {count}, static_cast<std::uint64_t>(count) * sizeof(std::int32_t)};
        integers_[name] = std::move(values);
    }
    void add_matrices(std::span<const ModelTensor> tensors) {
        matrices_ = make_synthetic_weights(path_, tensors);
    }

    const std::string& path() const override { return path_; }
    const TensorInfo* find(std::string_view name) const override {
        if (const auto found = infos_.find(name); found != infos_.end()) return &found->second;
        return matrices_ == nullptr ? nullptr : matrices_->find(name);
    }
    std::vector<std::string> names() const override {
        std::vector<std::string> all = matrices_ == nullptr ? std::vector<std::string>() : matrices_->names();
        for (const auto& [name, info] : infos_) all.push_back(name);
        std::sort(all.begin(), all.end());
        return all;
    }
    void read_row(const TensorInfo& tensor, std::int64_t row, float* out) const override {
        if (const auto found = integers_.find(tensor.name); found != integers_.end()) {
            std::copy(found->second.begin(), found->second.end(), out);
        } else {
            matrices_->read_row(tensor, row, out);
        }
    }
    Result<std::vector<std::int64_t>> read_integers(std::string_view name) const override {
        const auto found = integers_.find(name);
        if (found == integers_.end()) return WeightSource::read_integers(name);
        return found->second;
    }

  private:
    std::string path_;
    std::map<std::string, TensorInfo, std::less<>> infos_;
    std::map<std::string, std::vector<std::int64_t>, std::less<>> integers_;
    std::unique_ptr<WeightSource> matrices_;
};

struct ArtefactBuilder {
    const HeadSpec& spec;
    SyntheticShape shape;
    ArtefactInfo info;
    std::shared_ptr<GeneratedTensors> tensors;
    std::vector<ModelTensor> matrices;
};

/// Adds a down-projection for each level that `rank` lists, and one up-projection of the largest rank.
Status add_low_rank(ArtefactBuilder& builder, const std::string& up) {
    DS_ASSIGN(std::vector<int> ranks, whole_list_param(builder.spec, "rank"));
    if (ranks.empty()) ranks = {std::max(1, builder.shape.hidden / 8)};
    for (const int rank : ranks)
        if (rank > builder.shape.hidden)
            return bad_input("head {}: rank={} does not fit a head with {} inputs; use 1..{}",
                             builder.spec.id, rank, builder.shape.hidden, builder.shape.hidden);
    for (std::size_t level = 0; level < ranks.size(); ++level)
        builder.matrices.push_back({ranks.size() == 1 ? "down" : fmt::format("down.{}", level),
                                    {ranks[level], builder.shape.hidden}});
    builder.matrices.push_back({up, {builder.shape.tokens, *std::max_element(ranks.begin(), ranks.end())}});
    builder.info.parameters["rank"] = fmt::format("{}", fmt::join(ranks, "/"));
    return {};
}

/// Adds tokens spread evenly over the vocabulary.
Status add_trimmed(ArtefactBuilder& builder) {
    const int tokens = builder.shape.tokens;
    DS_ASSIGN(const int size, whole_param(builder.spec, "v", std::max(1, tokens / 4 / 64 * 64)));
    if (size > tokens)
        return bad_input("head {}: v={} does not fit the target, which has {} tokens", builder.spec.id, size,
                         tokens);
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < size; ++i) ids.push_back(i * tokens / size);
    builder.tensors->add_integers("ids", std::move(ids));
    builder.matrices.push_back({"weight", {size, builder.shape.hidden}});
    builder.info.parameters["v"] = std::to_string(size);
    return {};
}

/// Adds groups of equal size in tensor `map`, which has the name of the parameter for their number. Also adds
/// a router of `inputs` columns and `width` hidden units.
Status add_routed(ArtefactBuilder& builder, const std::string& map, int groups, int inputs, int width) {
    if (groups > builder.shape.tokens)
        return bad_input("head {}: {}={} exceeds the {} tokens", builder.spec.id, map, groups,
                         builder.shape.tokens);
    std::vector<std::int64_t> group_of;
    for (int token = 0; token < builder.shape.tokens; ++token) group_of.push_back(token % groups);
    builder.tensors->add_integers(map, std::move(group_of));
    builder.matrices.push_back({"router.in.weight", {width, inputs}});
    builder.matrices.push_back({"router.out.weight", {groups, width}});
    builder.info.parameters[map] = std::to_string(groups);
    return {};
}

Status add_dynaspec(ArtefactBuilder& builder) {
    DS_ASSIGN(const int clusters, whole_param(builder.spec, "clusters", 64));
    DS_ASSIGN(const int width, whole_param(builder.spec, "r", 128));
    builder.info.parameters["r"] = std::to_string(width);
    return add_routed(builder, "clusters", clusters, 2 * builder.shape.hidden, width);
}

Status add_coral(ArtefactBuilder& builder) {
    DS_ASSIGN(const int groups, whole_param(builder.spec, "groups", 16));
    return add_routed(builder, "groups", groups, builder.shape.hidden, builder.shape.hidden);
}

Status add_tensors(ArtefactBuilder& builder) {
    const std::string& head = builder.spec.id;
    if (head == "slimspec") return add_low_rank(builder, "up");
    if (head == "specvocab") return add_low_rank(builder, "vocab");
    if (head == "vocabtrim-t") return add_trimmed(builder);
    if (head == "dynaspec") return add_dynaspec(builder);
    if (head == "coral") return add_coral(builder);
    return bad_input("head {}: has no random artefacts; fit one", head);
}

}  // namespace

Result<SyntheticArtefact> make_synthetic_artefact(const std::string& target, const HeadSpec& spec) {
    DS_ASSIGN(SyntheticShape shape, synthetic_shape(target));
    ArtefactBuilder builder{spec, std::move(shape), {}, std::make_shared<GeneratedTensors>(target), {}};
    builder.info.head = spec.id;
    builder.info.synthetic = true;
    builder.info.target = builder.shape.name;
    builder.info.vocab = builder.shape.tokens;
    builder.info.hidden = builder.shape.hidden;
    DS_TRY(add_tensors(builder));
    builder.tensors->add_matrices(builder.matrices);
    return SyntheticArtefact{std::move(builder.info), std::move(builder.tensors)};
}

Result<std::unique_ptr<WeightSource>> make_synthetic_ranking(const std::string& target) {
    DS_ASSIGN(const SyntheticShape shape, synthetic_shape(target));
    auto tensors = std::make_unique<GeneratedTensors>(target);
    std::vector<std::int64_t> ids, counts;
    for (std::int64_t i = 0; i < shape.tokens; ++i) {
        ids.push_back(i);
        counts.push_back(100'000'000 / (i + 1));
    }
    tensors->add_integers("ids", std::move(ids));
    tensors->add_integers("counts", std::move(counts));
    return std::unique_ptr<WeightSource>(std::move(tensors));
}

}  // namespace draftscope
