#include "app/jobs/diagnose/readings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/parse.h"
#include "engine/draft/drafter_files.h"
#include "engine/draft/eagle_checkpoint.h"
#include "engine/draft/registry.h"

namespace draftscope {
namespace {

std::string layers_text(const std::vector<int>& layers) {
    return fmt::format("{}", fmt::join(layers, "/"));
}

/// Returns the feature layers in other orders, one earlier or later, and EAGLE-3's default.
std::vector<OtherValue> other_layers(const std::vector<int>& claimed, int layers) {
    std::vector<OtherValue> out;
    std::set<std::vector<int>> seen = {claimed};
    const auto add = [&](const std::vector<int>& other, const char* fault) {
        const bool exist = std::ranges::all_of(other, [&](int one) { return one >= 0 && one <= layers; });
        if (exist && seen.insert(other).second) out.push_back({"layers", layers_text(other), fault});
    };
    for (const int by : {1, -1}) {
        std::vector<int> moved = claimed;
        for (int& layer : moved) layer += by;
        add(moved, by > 0 ? "feature layers one too early" : "feature layers one too late");
    }
    std::vector<int> order = claimed;
    std::ranges::sort(order);
    // Of many layers, all orders are too many: each swap of neighbours and the reverse.
    const bool few = order.size() <= 3;
    do add(order, "feature layers in another order");
    while (few && std::next_permutation(order.begin(), order.end()));
    for (std::size_t i = 0; !few && i + 1 < claimed.size(); ++i) {
        std::vector<int> swapped = claimed;
        std::swap(swapped[i], swapped[i + 1]);
        add(swapped, "two feature layers swapped");
    }
    add({claimed.rbegin(), claimed.rend()}, "feature layers in reverse order");
    if (claimed.size() == 3 && layers >= 6)
        add({2, layers / 2, layers - 3}, "other feature layers than EAGLE-3's default");
    return out;
}

/// Returns the other value of an option with two.
std::vector<OtherValue> other_of(const char* option, bool is_second, const char* first, const char* second,
                                 const char* fault_of_second, const char* fault_of_first) {
    if (is_second) return {{option, first, fault_of_second}};
    return {{option, second, fault_of_first}};
}

/// Returns whether an option is given with this value.
bool is_given(const DrafterSource& source, std::string_view option, std::string_view value) {
    const auto found = source.options.find(option);
    return found != source.options.end() && found->second == value;
}

void add_eagle3(EagleCheckpoint& checkpoint, const DrafterSource& source, int layers,
                std::vector<std::vector<OtherValue>>& out) {
    const EagleNorms& norms = checkpoint.norms;
    out.push_back(other_layers(checkpoint.aux_layers, layers));
    out.push_back(other_of("recycle", norms.output, "raw", "normed", "recycles the normed state",
                           "recycles the state before the norm"));
    out.push_back(other_of("residual", norms.before_residual, "raw", "normed",
                           "the residual starts after the hidden norm",
                           "the residual starts before the hidden norm"));
    if (checkpoint.has("lm_head.weight"))
        out.push_back(other_of("head", is_given(source, "head", "target"), "own", "target",
                               "the target's LM head", "an LM head of its own"));
    // What the file holds is guessed, so both readings are tried unless one is given.
    if (!checkpoint.has("d2t")) return;
    out.emplace_back();
    for (const auto& [value, fault] :
         {std::pair("offsets", "d2t read as tokens"), {"tokens", "d2t read as offsets"}})
        if (!is_given(source, "d2t", value)) out.back().push_back({"d2t", value, fault});
}

}  // namespace

Result<Readings> find_readings(const ResolvedRun& run, const ModelConfig& target,
                               kernels::Precision precision) {
    Readings readings;
    std::vector<std::vector<OtherValue>>& out = readings.others;
    const DrafterInfo traits = drafter_traits(run.drafter_id);
    const bool is_small = precision == kernels::Precision::int8 || precision == kernels::Precision::int4;
    if (is_small || precision == kernels::Precision::bf16)
        out.push_back({{std::string(precision_option), is_small ? "bf16" : "f32",
                        fmt::format("{} is too coarse", kernels::to_text(precision))}});
    if (!traits.eagle) return readings;
    DS_ASSIGN(const DrafterSource source, parse_drafter_source(run.drafter_path, traits.options));
    DS_ASSIGN(EagleCheckpoint checkpoint, read_eagle_checkpoint(*traits.eagle, run.drafter_path, target));
    if (*traits.eagle == EagleGeneration::eagle3)
        add_eagle3(checkpoint, source, target.layers, out);
    else
        out.push_back(other_of("features", !checkpoint.aux_layers.empty(), "normed", "raw",
                               "features before the final norm", "features after the final norm"));
    out.push_back(other_of("rope", is_given(source, "rope", "target"), "own", "target",
                           "the target's rotation", "a rotation of its own"));
    if (checkpoint.has("embed_tokens.weight"))
        out.push_back(other_of("embeddings", is_given(source, "embeddings", "target"), "own", "target",
                               "the target's embeddings", "embeddings of its own"));
    std::set<int> layers(checkpoint.aux_layers.begin(), checkpoint.aux_layers.end());
    for (const OtherValue& change : *std::ranges::find_if(out, [](const auto& one) {
             return one.front().option == "layers" || one.front().option == "features";
         })) {
        if (change.option == "features") layers.insert(target.layers);
        const auto other = parse_numbers(change.value, '/', 0, static_cast<int>(max_layers));
        if (other) layers.insert(other->begin(), other->end());
    }
    readings.layers.assign(layers.begin(), layers.end());
    return readings;
}

Result<std::string> changed_drafter(const ResolvedRun& run, const std::vector<OtherValue>& changes) {
    DS_ASSIGN(DrafterSource source,
              parse_drafter_source(run.drafter_path, drafter_traits(run.drafter_id).options));
    for (const OtherValue& change : changes)
        if (change.option != precision_option) source.options[change.option] = change.value;
    std::string out = run.drafter_id;
    if (!source.path.empty() || !source.options.empty()) out += ":" + source.path;
    for (const auto& [option, value] : source.options) out += fmt::format(",{}={}", option, value);
    return out;
}

}  // namespace draftscope
