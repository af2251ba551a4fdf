#include "capture/run_setting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace draftscope {
namespace {

using nlohmann::json;

json parsed(const std::string& text) {
    json document = json::parse(text, nullptr, false);
    return document.is_object() ? document : json::object();
}

std::string dump_json(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// Returns the name of the GPU from the detected machine; null if it has none.
json find_gpu(const json& machine) {
    const auto capabilities = machine.find("capabilities");
    if (capabilities == machine.end() || !capabilities->is_array()) return nullptr;
    for (const json& one : *capabilities)
        if (one.is_object() && one.value("name", json()) == "GPU") return one.value("state", json());
    return nullptr;
}

/// Returns a positive number of the run's machine; absent if it is missing or null.
std::optional<double> machine_rate(const RunRow& run, const char* key) {
    const json machine = parsed(run.machine_json);
    const auto found = machine.find(key);
    if (found == machine.end() || !found->is_number() || found->get<double>() <= 0) return std::nullopt;
    return found->get<double>();
}

class FieldList {
  public:
    explicit FieldList(const RunRow& run) : config_(parsed(run.config_json)) {
        add_source(run);
        add_work(run);
        add_subject(run);
        add_drafting(run);
        std::sort(fields_.begin(), fields_.end(),
                  [](const SettingField& a, const SettingField& b) { return a.key < b.key; });
    }
    std::vector<SettingField> take() { return std::move(fields_); }

  private:
    void add(const char* key, const char* label, const json& value, SettingKind kind, bool drafting = false) {
        if (value.is_null()) return;
        const std::string json_text = dump_json(value);
        const std::string text = value.is_string()         ? value.get<std::string>()
                                 : value.is_number_float() ? fmt::format("{:g}", value.get<double>())
                                                           : json_text;
        fields_.push_back({key, label, text, json_text, kind, drafting});
    }
    void add_configured(const char* key, const char* label, SettingKind kind, bool drafting = false) {
        const auto found = config_.find(key);
        if (found != config_.end()) add(key, label, *found, kind, drafting);
    }

    void add_source(const RunRow& run) {
        constexpr auto kind = SettingKind::source;
        const json machine = parsed(run.machine_json);
        // An import that does not name its target may be of any.
        if (!run.target.empty()) add("target", "target", run.target, kind);
        add("weights", "weights", run.synthetic ? "synthetic" : "real", kind);
        add_configured("model_hash", "contents of the model's files", kind);
        add_configured("tokenizer_fingerprint", "tokenizer", kind);
        add("tier", "tier", run.tier, kind);
        add("backend", "back end", run.backend, kind);
        if (const auto from = config_.find(import_key); from != config_.end() && from->is_object())
            add("engine", "engine", from->value("engine", json()), SettingKind::subject);
        add("cpu", "CPU", machine.value("cpu", json()), kind);
        add("cores", "cores", machine.value("cores", json()), kind);
        add("isa", "instruction set", machine.value("isa", json()), kind);
        if (run.backend != "cpu") add("gpu", "GPU", find_gpu(machine), kind);
    }

    void add_work(const RunRow& run) {
        constexpr auto kind = SettingKind::work;
        if (std::isfinite(run.temperature)) add("temperature", "temperature", run.temperature, kind);
        if (run.temperature > 0) {
            add_configured("top_p", "top-p", kind);
            add_configured("top_k", "top-k", kind);
        }
        add_configured("max_new", "max-new", kind);
        add_configured("context", "context limit", kind);
        // With simulated acceptance the text has no meaning, nor does its end.
        if (run.acceptance != "real" && run.acceptance != imported_acceptance)
            add("ignore_eos", "ignore-eos", true, kind);
        else
            add_configured("ignore_eos", "ignore-eos", kind);
        add_configured("raw", "raw", kind);
        add("system_hash", "system turn", config_.value("system_hash", json("none")), kind);
        add("template", "template", config_.value("template", json("none")), kind);
    }

    void add_subject(const RunRow& run) {
        constexpr auto kind = SettingKind::subject;
        add("precision", "precision", run.precision, kind);
        add("numerics", "numerics", run.numerics, kind);
        add("batch", "batch", run.batch < 0 ? json() : json(run.batch), kind);
        add("threads", "threads", run.threads < 0 ? json() : json(run.threads), kind);
        add_configured("pin", "pin", kind);
        if (run.backend == "cpu") return;
        add_configured("gpu_graphs", "GPU graphs", kind);
        add_configured("gpu_rounds", "GPU rounds", kind);
        add_configured("l2_window", "L2 window", kind);
    }

    void add_drafting(const RunRow& run) {
        add("acceptance", "acceptance", run.acceptance, SettingKind::source, true);
        add("drafter", "drafter", run.drafter, SettingKind::subject, true);
        add_configured("drafter_hash", "contents of the drafter's files", SettingKind::subject, true);
        add("tree", "tree", run.tree, SettingKind::subject, true);
        // At temperature 0 every rule is greedy exact match.
        add("verify", "verify", run.temperature > 0 ? run.verify : "match", SettingKind::subject, true);
    }

    json config_;
    std::vector<SettingField> fields_;
};

std::string to_object(const RunRow& run, bool drafting) {
    std::string out = "{";
    for (const SettingField& field : setting_fields(run)) {
        if (field.drafting && !drafting) continue;
        // Settings of earlier versions lack it.
        if (field.key == "template" && field.text == "none") continue;
        if (out.size() > 1) out += ",";
        out += dump_json(field.key) + ":" + field.value;
    }
    return out + "}";
}

}  // namespace

std::vector<SettingField> setting_fields(const RunRow& run) {
    return FieldList(run).take();
}

std::string plain_setting(const RunRow& run) {
    return to_object(run, false);
}

std::string head_setting(const RunRow& run) {
    return to_object(run, true);
}

std::string repeat_setting(const RunRow& run) {
    return head_setting(run) + "\n" + run.head + "\n" +
           dump_json(parsed(run.config_json).value("head_hash", json()));
}

std::int64_t planned_prompts(const RunRow& run) {
    const json config = parsed(run.config_json);
    const auto found = config.find(planned_prompts_key);
    return found != config.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

std::optional<double> probed_gb_per_s(const RunRow& run) {
    return machine_rate(run, "read_gb_per_s");
}

std::optional<double> probed_scattered_gb_per_s(const RunRow& run) {
    return machine_rate(run, "scattered_read_gb_per_s");
}

std::string ranking_source(const RunRow& run) {
    const json config = parsed(run.config_json);
    const auto found = config.find(ranking_key);
    return found != config.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool is_baseline(const RunRow& run) {
    return run.drafter == plain_drafter &&
           parsed(run.config_json).value(std::string(role_key), json()) == baseline_role;
}

const std::vector<std::string_view>& setting_config_keys() {
    static const std::vector<std::string_view> keys = {"tokenizer_fingerprint",
                                                       "model_hash",
                                                       "drafter_hash",
                                                       "head_hash",
                                                       "top_p",
                                                       "top_k",
                                                       "max_new",
                                                       "context",
                                                       "ignore_eos",
                                                       "raw",
                                                       "system_hash",
                                                       "template",
                                                       "pin",
                                                       "gpu_graphs",
                                                       "gpu_rounds",
                                                       "l2_window",
                                                       role_key,
                                                       import_key,
                                                       losslessness_key};
    return keys;
}

}  // namespace draftscope
