#include "engine/heads/synthetic_artefact.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "engine/formats/architecture.h"
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

}  // namespace

Status add_low_rank(SyntheticBuilder& builder, const std::string& up) {
    DS_ASSIGN(std::vector<int> ranks, int_list_param(builder.spec, "rank"));
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

Status add_routed(SyntheticBuilder& builder, const std::string& map, int groups, int inputs, int width) {
    if (groups > builder.shape.tokens)
        return bad_input("head {}: {}={} exceeds the {} tokens", builder.spec.id, map, groups,
                         builder.shape.tokens);
    std::vector<std::int64_t> group_of;
    for (int token = 0; token < builder.shape.tokens; ++token) group_of.push_back(token % groups);
    builder.integers[map] = std::move(group_of);
    builder.matrices.push_back({"router.in.weight", {width, inputs}});
    builder.matrices.push_back({"router.out.weight", {groups, width}});
    builder.info.parameters[map] = std::to_string(groups);
    return {};
}

Result<SyntheticArtefact> make_synthetic_artefact(const std::string& target, const HeadSpec& spec) {
    DS_ASSIGN(SyntheticShape shape, synthetic_shape(target));
    const HeadInfo* head = find_head(spec.id);
    if (head == nullptr || head->synthesize == nullptr)
        return bad_input("head {}: has no random artefacts; fit one", spec.id);
    SyntheticBuilder builder{spec, std::move(shape), {}, {}, {}};
    builder.info.head = spec.id;
    builder.info.synthetic = true;
    builder.info.target = builder.shape.name;
    builder.info.vocab = builder.shape.tokens;
    builder.info.hidden = builder.shape.hidden;
    DS_TRY(head->synthesize(builder));
    auto tensors = std::make_shared<GeneratedTensors>(target);
    for (auto& [name, values] : builder.integers) tensors->add_integers(name, std::move(values));
    tensors->add_matrices(builder.matrices);
    return SyntheticArtefact{std::move(builder.info), std::move(tensors)};
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
