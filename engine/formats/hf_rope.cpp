#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "engine/formats/config_keys.h"
#include "engine/formats/rope_config.h"

namespace draftscope {
namespace {

/// Reads a positive number; `fallback` is that of an absent field, 0 if it may not be absent.
Status read_number(const JsonFile& scaling, const char* field, double& out, double fallback = 0) {
    DS_ASSIGN(const auto value, scaling.positive(field));
    out = value.value_or(fallback);
    if (out == 0) return scaling.field_error(field, "a positive number");
    return {};
}

/// Reads the context before scaling. As in transformers 5, the whole config's value comes first.
Status read_original_context(const JsonFile& file, const JsonFile& scaling, double& out,
                             double fallback = 0) {
    constexpr const char* field = "original_max_position_embeddings";
    DS_ASSIGN(const auto outer, file.positive(field));
    DS_TRY(read_number(scaling, field, out, outer.value_or(fallback)));
    out = outer.value_or(out);
    return {};
}

/// Returns llama3 scaling as divisors of the base frequencies: 1 for short wavelengths, `factor` for long
/// ones, and a blend of both frequencies in between.
Result<std::vector<float>> read_llama3(const JsonFile& file, const JsonFile& scaling, double theta,
                                       int head_dim) {
    double factor = 0, low = 0, high = 0, context = 0;
    DS_TRY(read_number(scaling, "factor", factor));
    DS_TRY(read_number(scaling, "low_freq_factor", low));
    DS_TRY(read_number(scaling, "high_freq_factor", high));
    DS_TRY(read_original_context(file, scaling, context));
    if (high <= low) return scaling.field_error("high_freq_factor", "more than low_freq_factor");
    std::vector<float> out;
    for (int j = 0; j < head_dim / 2; ++j) {
        const double frequency = std::pow(theta, -2.0 * j / head_dim);
        const double waves = context * frequency / (2 * std::numbers::pi);
        double scaled = frequency;
        if (waves < low) {
            scaled = frequency / factor;
        } else if (waves <= high) {
            const double share = (waves - low) / (high - low);
            scaled = (1 - share) * frequency / factor + share * frequency;
        }
        out.push_back(static_cast<float>(frequency / scaled));
    }
    return out;
}

/// Returns YaRN's factor of cos and sin for `scale`, DeepSeek's with another weight of the logarithm.
double yarn_scale(double scale, double weight = 1) {
    return scale <= 1 ? 1 : 0.1 * weight * std::log(scale) + 1;
}

/// `file` is the whole config, which holds the context.
Status read_yarn(const JsonFile& file, const JsonFile& scaling, int head_dim, RopeConfig& out) {
    YarnScaling yarn;
    DS_ASSIGN(const auto context, file.positive("max_position_embeddings"));
    DS_TRY(read_original_context(file, scaling, yarn.original_context, context.value_or(0)));
    // As in transformers, the ratio of two contexts stands in for a factor.
    const double ratio = context.value_or(0) / yarn.original_context;
    DS_TRY(read_number(scaling, "factor", yarn.factor, ratio == 1 ? 0 : ratio));
    DS_TRY(read_number(scaling, "beta_fast", yarn.beta_fast, 32));
    DS_TRY(read_number(scaling, "beta_slow", yarn.beta_slow, 1));
    DS_ASSIGN(const auto truncate, scaling.boolean("truncate"));
    yarn.truncate = truncate.value_or(true);
    DS_ASSIGN(const auto above, scaling.positive("mscale"));
    DS_ASSIGN(const auto below, scaling.positive("mscale_all_dim"));
    const double usual = above && below ? yarn_scale(yarn.factor, *above) / yarn_scale(yarn.factor, *below)
                                        : yarn_scale(yarn.factor);
    double scale = 1;
    DS_TRY(read_number(scaling, "attention_factor", scale, usual));
    out.scale = static_cast<float>(scale);
    if (out.theta <= 1) return file.field_error("rope_theta", "more than 1 with yarn");
    out.divisors = yarn_divisors(yarn, out.theta, head_dim);
    return {};
}

/// Text has equal positions in all sections of mrope.
const std::vector<ConfigKey> rope_keys = make_keys(
    R"(attention_factor beta_fast beta_slow factor high_freq_factor low_freq_factor mscale mscale_all_dim
original_max_position_embeddings rope_theta rope_type truncate type)",
    "finetuned mrope_interleaved mrope_section",
    "attn_factor=1 extrapolation_factor=1 partial_rotary_factor=1");

/// An object of objects: one per layer type.
bool is_by_layer_type(const JsonFile& scaling) {
    const nlohmann::json& entries = scaling.json();
    return scaling.find("rope_theta") == nullptr && scaling.find("rope_type") == nullptr &&
           scaling.find("type") == nullptr &&
           std::any_of(entries.begin(), entries.end(), [](const auto& value) { return value.is_object(); });
}

/// Returns the entry of the layers that the models here have.
Result<JsonFile> choose_layer_type(const JsonFile& file, const JsonFile& by_type, Notes& notes) {
    constexpr const char* used = "full_attention";
    DS_ASSIGN(auto entry, by_type.object(used));
    if (!entry) {
        const auto& entries = by_type.json();
        const bool equal = std::all_of(entries.begin(), entries.end(),
                                       [&](const auto& one) { return one == *entries.begin(); });
        if (!equal || !entries.begin()->is_object())
            return by_type.field_error(used, "the rotation of layers with full attention");
        DS_ASSIGN(entry, by_type.object(entries.begin().key().c_str()));
    }
    for (const auto& [name, value] : by_type.json().items()) {
        if (value.is_null() || value == entry->json()) continue;
        add_note(notes, "{}: {}{} is not used: layers of that type are not computed", file.path(),
                 by_type.prefix(), printable(name));
    }
    return *entry;
}

/// Returns the scaling of a schema under the newer names, without the base.
nlohmann::json without_base(nlohmann::json scaling) {
    scaling.erase("rope_theta");
    if (scaling.contains("type") && !scaling.contains("rope_type")) scaling["rope_type"] = scaling["type"];
    scaling.erase("type");
    return scaling;
}

/// Notes that rope_parameters gives another rotation than `scaling`, rope_scaling, with the base `theta`.
Status note_replaced(const JsonFile& file, const JsonFile& scaling, double theta, Notes& notes) {
    DS_ASSIGN(const auto other, file.object("rope_parameters"));
    if (!other || other->json().empty()) return {};
    DS_ASSIGN(const auto base, other->positive("rope_theta"));
    if (base.value_or(theta) == theta && without_base(other->json()) == without_base(scaling.json()))
        return {};
    add_note(
        notes,
        "{}: rope_scaling and rope_theta give another rotation than rope_parameters {}; the former are used, "
        "as in transformers",
        file.path(), printable_json(other->json()));
    return {};
}

/// Returns whether a type equals the plain rotation for text within the context.
Result<bool> is_plain(const JsonFile& file, const JsonFile& scaling, const char* field,
                      const std::string& type, Notes& notes) {
    if (type == "default" || type == "mrope") {
        DS_ASSIGN(const auto factor, scaling.positive("factor"));
        if (!factor || *factor == 1) return true;
        if (scaling.find(field) == nullptr)
            return scaling.field_error(field, fmt::format("a type for the factor {}, as linear", *factor));
        add_note(notes, "{}: {}factor is {}, which has no effect with type {}", file.path(), scaling.prefix(),
                 *factor, type);
        return true;
    }
    if (type != "dynamic") return false;
    add_note(notes,
             "{}: {}{} is dynamic, which equals the plain rotation up to max_position_embeddings; it is not "
             "computed beyond",
             file.path(), scaling.prefix(), field);
    return true;
}

}  // namespace

std::vector<float> yarn_divisors(const YarnScaling& scaling, double theta, int head_dim) {
    const auto dimension = [&](double turns) {
        return head_dim * std::log(scaling.original_context / (turns * 2 * std::numbers::pi)) /
               (2 * std::log(theta));
    };
    double low = dimension(scaling.beta_fast), high = dimension(scaling.beta_slow);
    if (scaling.truncate) low = std::floor(low);
    if (scaling.truncate) high = std::ceil(high);
    low = std::max(low, 0.0);
    high = std::min(high, head_dim - 1.0);
    const double width = std::max(high - low, 0.001);
    std::vector<float> out;
    for (int j = 0; j < head_dim / 2; ++j) {
        const double interpolated = std::clamp((j - low) / width, 0.0, 1.0);
        out.push_back(static_cast<float>(1 / (interpolated / scaling.factor + 1 - interpolated)));
    }
    return out;
}

Result<RopeConfig> read_hf_rope(const JsonFile& file, int head_dim, Notes& notes) {
    DS_ASSIGN(auto scaling, file.object("rope_scaling"));
    DS_ASSIGN(const auto partial, file.positive("partial_rotary_factor"));
    if (partial.value_or(1) != 1)
        return file.field_error("partial_rotary_factor", "1: this version rotates whole heads");
    // Both transformers 4 and 5 prefer rope_scaling, which replaces all of rope_parameters.
    const bool older = scaling && !scaling->json().empty();
    if (!older) {
        DS_ASSIGN(scaling, file.object("rope_parameters"));
    }
    if (scaling && is_by_layer_type(*scaling)) {
        DS_ASSIGN(scaling, choose_layer_type(file, *scaling, notes));
    }
    RopeConfig out;
    DS_ASSIGN(const auto outer, file.positive("rope_theta"));
    DS_ASSIGN(const auto inner, scaling ? scaling->positive("rope_theta") : std::optional<double>());
    const double theta = inner ? *inner : outer.value_or(10000.0);
    out.theta = static_cast<float>(theta);
    if (!scaling) return out;
    if (inner && outer && *inner != *outer)
        add_note(notes, "{}: rope_theta is {}, but {}rope_theta {} is used, as in transformers 5",
                 file.path(), *outer, scaling->prefix(), *inner);
    DS_TRY(check_keys(*scaling, rope_keys, notes));
    if (older) DS_TRY(note_replaced(file, *scaling, theta, notes));
    DS_ASSIGN(const auto newer_type, scaling->text("rope_type"));
    DS_ASSIGN(const auto older_type, scaling->text("type"));
    const char* field = !newer_type && older_type ? "type" : "rope_type";
    const std::string type = newer_type ? *newer_type : older_type.value_or("default");
    const bool both_plain = type == "default" && older_type.value_or(type) == "mrope";
    if (older_type.value_or(type) != type && !both_plain)
        return scaling->field_error("type", fmt::format("{}, as rope_type says", type));
    DS_ASSIGN(const bool plain, is_plain(file, *scaling, field, type, notes));
    if (plain) return out;
    if (type == "llama3") {
        DS_ASSIGN(out.divisors, read_llama3(file, *scaling, out.theta, head_dim));
    } else if (type == "linear") {
        // Dividing positions by a factor equals dividing the frequencies by it.
        double factor = 1;
        DS_TRY(read_number(*scaling, "factor", factor));
        out.divisors.assign(head_dim / 2, static_cast<float>(factor));
    } else if (type == "yarn") {
        DS_TRY(read_yarn(file, *scaling, head_dim, out));
    } else {
        return scaling->field_error(
            field, "default, linear, llama3 or yarn, the rotations that this version computes");
    }
    return out;
}

}  // namespace draftscope
