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
class MadeTensors final : public WeightSource {
  public:
    explicit MadeTensors(std::string path) : path_(std::move(path)) {}

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

struct Making {
    const HeadSpec& spec;
    SyntheticShape shape;
    ArtefactInfo info;
    std::shared_ptr<MadeTensors> tensors;
    std::vector<ModelTensor> matrices;
};

/// Adds a down-projection for each level that `rank` lists, and one up-projection of the largest rank.
Status add_low_rank(Making& making, const std::string& up) {
    DS_ASSIGN(std::vector<int> ranks, whole_list_param(making.spec, "rank"));
    if (ranks.empty()) ranks = {std::max(1, making.shape.hidden / 8)};
    for (const int rank : ranks)
        if (rank > making.shape.hidden)
            return bad_input("head {}: rank={} does not fit a head with {} inputs; use 1..{}", making.spec.id,
                             rank, making.shape.hidden, making.shape.hidden);
    for (std::size_t level = 0; level < ranks.size(); ++level)
        making.matrices.push_back({ranks.size() == 1 ? "down" : fmt::format("down.{}", level),
                                   {ranks[level], making.shape.hidden}});
    making.matrices.push_back({up, {making.shape.tokens, *std::max_element(ranks.begin(), ranks.end())}});
    making.info.parameters["rank"] = fmt::format("{}", fmt::join(ranks, "/"));
    return {};
}

/// Adds tokens spread evenly over the vocabulary.
Status add_trimmed(Making& making) {
    const int tokens = making.shape.tokens;
    DS_ASSIGN(const int size, whole_param(making.spec, "v", std::max(1, tokens / 4 / 64 * 64)));
    if (size > tokens)
        return bad_input("head {}: v={} does not fit the target, which has {} tokens", making.spec.id, size,
                         tokens);
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < size; ++i) ids.push_back(i * tokens / size);
    making.tensors->add_integers("ids", std::move(ids));
    making.matrices.push_back({"weight", {size, making.shape.hidden}});
    making.info.parameters["v"] = std::to_string(size);
    return {};
}

/// Adds groups of equal size in tensor `map`, which has the name of the parameter for their number. Also adds
/// a router of `inputs` columns and `width` hidden units.
Status add_routed(Making& making, const std::string& map, int groups, int inputs, int width) {
    if (groups > making.shape.tokens)
        return bad_input("head {}: {}={} exceeds the {} tokens", making.spec.id, map, groups,
                         making.shape.tokens);
    std::vector<std::int64_t> group_of;
    for (int token = 0; token < making.shape.tokens; ++token) group_of.push_back(token % groups);
    making.tensors->add_integers(map, std::move(group_of));
    making.matrices.push_back({"router.in.weight", {width, inputs}});
    making.matrices.push_back({"router.out.weight", {groups, width}});
    making.info.parameters[map] = std::to_string(groups);
    return {};
}

Status add_dynaspec(Making& making) {
    DS_ASSIGN(const int clusters, whole_param(making.spec, "clusters", 64));
    DS_ASSIGN(const int width, whole_param(making.spec, "r", 128));
    making.info.parameters["r"] = std::to_string(width);
    return add_routed(making, "clusters", clusters, 2 * making.shape.hidden, width);
}

Status add_coral(Making& making) {
    DS_ASSIGN(const int groups, whole_param(making.spec, "groups", 16));
    return add_routed(making, "groups", groups, making.shape.hidden, making.shape.hidden);
}

Status add_tensors(Making& making) {
    const std::string& head = making.spec.id;
    if (head == "slimspec") return add_low_rank(making, "up");
    if (head == "specvocab") return add_low_rank(making, "vocab");
    if (head == "vocabtrim-t") return add_trimmed(making);
    if (head == "dynaspec") return add_dynaspec(making);
    if (head == "coral") return add_coral(making);
    return bad_input("head {}: has no random artefacts; fit one", head);
}

}  // namespace

Result<SyntheticArtefact> make_synthetic_artefact(const std::string& target, const HeadSpec& spec) {
    DS_ASSIGN(SyntheticShape shape, synthetic_shape(target));
    Making making{spec, std::move(shape), {}, std::make_shared<MadeTensors>(target), {}};
    making.info.head = spec.id;
    making.info.synthetic = true;
    making.info.target = making.shape.name;
    making.info.vocab = making.shape.tokens;
    making.info.hidden = making.shape.hidden;
    DS_TRY(add_tensors(making));
    making.tensors->add_matrices(making.matrices);
    return SyntheticArtefact{std::move(making.info), std::move(making.tensors)};
}

Result<std::unique_ptr<WeightSource>> make_synthetic_ranking(const std::string& target) {
    DS_ASSIGN(const SyntheticShape shape, synthetic_shape(target));
    auto tensors = std::make_unique<MadeTensors>(target);
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
