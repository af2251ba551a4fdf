#include "tests/support/tiny_artefacts.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/heads/artefact.h"
#include "engine/heads/registry.h"

namespace draftscope::testing {
namespace {

std::vector<float> random(int count, std::uint64_t seed, float scale) {
    Rng rng(seed);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = scale * static_cast<float>(rng.normal());
    return values;
}

}  // namespace

void TinyArtefacts::save(const std::string& head, const std::map<std::string, std::string>& parameters,
                         const std::vector<Tensor>& tensors) {
    ArtefactInfo info;
    info.head = head;
    info.vocab = vocab_;
    info.hidden = hidden_;
    info.parameters.insert(parameters.begin(), parameters.end());
    std::vector<TensorToSave> list;
    for (const Tensor& t : tensors)
        list.push_back(
            {t.name, t.floats.empty() ? "I32" : "F32", t.shape,
             t.floats.empty() ? std::as_bytes(std::span(t.integers)) : std::as_bytes(std::span(t.floats))});
    const Status saved = save_artefact(folder_.file(head), info, list);
    if (!saved.ok()) ADD_FAILURE() << saved.error().message;
    fixture_.use_artefact(head, folder_.file(head));
}

TinyArtefacts::TinyArtefacts(DecodeFixture& fixture)
    : fixture_(fixture), vocab_(fixture.target().config().vocab), hidden_(fixture.target().config().hidden) {
    std::vector<float> head(static_cast<std::size_t>(vocab_ * hidden_));
    for (int r = 0; r < vocab_; ++r)
        fixture.target().lm_head().unpack_row(r, std::span(head).subspan(r * hidden_, hidden_));
    std::vector<float> same = random(hidden_ * hidden_, 3, 0.05f);
    for (int i = 0; i < hidden_; ++i) same[i * hidden_ + i] += 1.0f;
    std::vector<std::int32_t> ids, groups;
    std::vector<float> kept;
    for (int id = 0; id < vocab_; ++id) {
        groups.push_back(id % 5);
        if (id % 3 == 2) continue;
        ids.push_back(id);
        kept.insert(kept.end(), head.begin() + id * hidden_, head.begin() + (id + 1) * hidden_);
    }
    const auto size = static_cast<std::int64_t>(ids.size());
    const auto save_routed = [&](const std::string& id, const std::string& map, int inputs) {
        save(id, {{map, "5"}},
             {{"router.in.weight", {16, inputs}, random(16 * inputs, 5, 0.2f)},
              {"router.out.weight", {5, 16}, random(5 * 16, 6, 1.0f)},
              {map, {vocab_}, {}, groups}});
    };
    for (const HeadInfo& info : head_registry()) {
        const std::string id(info.id);
        if (info.fit.has(FitRecipe::low_rank))
            save(id, {},
                 {{"down", {hidden_, hidden_}, same}, {std::string(info.fit.up), {vocab_, hidden_}, head}});
        else if (info.fit.has(FitRecipe::any_trimmed_rows))
            save(id, {}, {{"ids", {size}, {}, ids}, {"weight", {size, hidden_}, kept}});
        else if (info.fit.has(FitRecipe::groups))
            save_routed(id, "groups", hidden_);
        else if (info.fit.has(FitRecipe::clusters))
            save_routed(id, "clusters", 2 * hidden_);
        else
            EXPECT_FALSE(info.accepts_artefact()) << "no tiny weights of " << id;
    }
    // Every token keeps a part and gives the rest to two others.
    std::vector<std::int32_t> neighbours;
    std::vector<float> weights;
    for (int t = 0; t < vocab_; ++t)
        for (const int step : {0, 1, 5}) {
            neighbours.push_back((t + step) % vocab_);
            weights.push_back(step == 0 ? 0.5f : step == 1 ? 0.3f : 0.2f);
        }
    save("rdk", {}, {{"neighbours", {vocab_, 3}, {}, neighbours}, {"weights", {vocab_, 3}, weights}});
}

}  // namespace draftscope::testing
