#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <span>

#include "base/mapped_file.h"
#include "engine/draft/drafter_files.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;

/// A published kind of drafter.
struct DrafterFamily {
    std::string_view name;      ///< "P-EAGLE"
    std::string_view drafters;  ///< what drafts with it here: "eagle2 or eagle3"; "" = nothing
    // Separated by spaces:
    std::string_view types;    ///< parts of classes and types in the config, without case and punctuation
    std::string_view keys;     ///< beginnings of the config's fields
    std::string_view tensors;  ///< parts of tensor names
};

/// The first row that matches wins.
constexpr auto families = std::to_array<DrafterFamily>({
    {"DSpark", "", "dspark dspine", "markov_", "markov_head. markov_w1."},
    {"Domino", "", "domino", "", "prefix_gru."},
    {"JetSpec", "", "jetspec", "", ""},
    {"DFlash", "", "dflash dflare", "dflash_", "dflash_"},
    {"P-EAGLE", "", "peagle paralleleagle", "ptd_token_id parallel_drafting", "mask_hidden"},
    {"EAGLE with parallel heads", "", "", "", "parallel_draft_heads."},
    {"PARD", "", "pard", "pard_", ""},
    {"Hydra", "hydra", "hydra", "hydra_", "hydra_mlp. hydra_lm_head. hydra_head"},
    {"Medusa", "medusa", "medusa", "medusa_", "medusa_head 0.0.linear.weight blocks.0.layers.0."},
    {"ReDrafter", "", "redrafter recurrentdrafter", "rnn_", "drafter.rnn redrafter"},
    {"Clover", "", "clover", "", ""},
    {"MLP speculator", "", "mlpspeculator", "n_predict inner_dim", "speculator.emb. emb.0.weight"},
    {"LSTM speculator", "", "lstmspeculator", "", "forget_emb. cell_emb"},
    {"MTP", "", "mtp nextn multitokenprediction", "num_mtp_layers mtp_",
     "eh_proj. mtp.layers. mtp_layers. mtp.fc. .nextn."},
    {"EAGLE with latent attention", "", "", "kv_lora_rank", "kv_a_proj_with_mqa"},
    {"EAGLE with experts", "", "", "", "mlp.experts."},
    {"LoRA", "", "", "lora_", ".lora_A."},
    {"EAGLE", "eagle2 or eagle3", "eagle hass", "eagle_", "fc.weight fusion_fc.weight"},
    {"draft model, a language model of its own", "draft-model", "", "", "layers.1.self_attn."},
});

/// A name in a checkpoint, and its text for messages.
struct Evidence {
    std::string name, text;
};

/// Returns whether `matches` of any of the words.
template <typename Predicate>
bool any_of_words(std::string_view words, Predicate matches) {
    while (!words.empty()) {
        const std::string_view word = words.substr(0, words.find(' '));
        if (matches(word)) return true;
        words.remove_prefix(std::min(words.size(), word.size() + 1));
    }
    return false;
}

/// Adds the classes and types in a config, in lower case and without punctuation.
void add_types(const Json& object, std::vector<Evidence>& out) {
    for (const auto& [field, value] : object.items()) {
        if (!any_of_words("architectures speculators_model_type model_type algorithm projector_type "
                          "speculators_config dflash_config causal_head",
                          [&](auto word) { return field == word; }))
            continue;
        const Json& first = value.is_array() && !value.empty() ? value.front() : value;
        std::string name = first.is_string() ? first.get<std::string>() : std::string();
        std::erase_if(name, [](unsigned char c) { return std::isalnum(c) == 0; });
        std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
        if (field == "causal_head" && first == true) name = "jetspec";
        if (!name.empty()) out.push_back({name, fmt::format("{} is {}", field, printable_json(first))});
        if (value.is_object()) add_types(value, out);
    }
}

}  // namespace

std::optional<FamilyMatch> find_family(const nlohmann::json& config, const WeightSource& weights) {
    std::vector<Evidence> types, keys, tensors;
    if (config.is_object()) {
        add_types(config, types);
        for (const auto& [field, value] : config.items())
            if (!value.is_null()) keys.push_back({field, "it has " + printable(field)});
    }
    for (const std::string& name : weights.names())
        tensors.push_back({name, fmt::format("it has tensor '{}'", printable(name))});
    for (const DrafterFamily& family : families) {
        const Evidence* found = nullptr;
        const auto search = [&](const std::vector<Evidence>& all, std::string_view words, bool at_start) {
            for (const Evidence& one : all)
                if (found == nullptr && any_of_words(words, [&](auto word) {
                        const std::size_t at = one.name.find(word);
                        return at_start ? at == 0 : at != std::string::npos;
                    }))
                    found = &one;
        };
        search(types, family.types, false);
        search(keys, family.keys, true);
        search(tensors, family.tensors, false);
        if (found != nullptr) return FamilyMatch{family.name, family.drafters, found->text};
    }
    return std::nullopt;
}

Status check_family(const DrafterFiles& files, std::initializer_list<std::string_view> supported) {
    const auto family = find_family(files.config ? files.config->json() : Json(), *files.weights);
    if (!family || std::find(supported.begin(), supported.end(), family->name) != supported.end()) return {};
    return bad_input("{}: is a drafter of family {} ({}), not {} {} checkpoint; {}",
                     files.config ? files.config->path() : files.weights->path(), family->name,
                     family->evidence, *supported.begin() == "EAGLE" ? "an" : "a", *supported.begin(),
                     family->drafters.empty() ? std::string("this version does not draft with it")
                                              : fmt::format("use --drafter {}:PATH", family->drafters));
}

}  // namespace draftscope
