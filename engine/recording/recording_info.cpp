#include "engine/recording/recording_info.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_file.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;

constexpr const char* format_name = "draftscope-trace";
constexpr std::int64_t max_rows = std::int64_t{1} << 40;
constexpr int max_ids = 1 << 24;

/// One entry of an array of objects. Errors name its index.
class Entry {
  public:
    Entry(const std::string& file, std::string where, const Json& json)
        : file_(file), where_(std::move(where)), json_(json) {}

    Result<std::string> text(const char* field) const {
        const auto found = json_.find(field);
        if (found == json_.end() || found->is_null()) return std::string();
        if (!found->is_string()) return field_error(field, *found, "a string");
        return found->get<std::string>();
    }
    Result<std::int64_t> integer(const char* field, std::int64_t lowest, std::int64_t highest,
                                 std::optional<std::int64_t> fallback = {}) const {
        const auto found = json_.find(field);
        if ((found == json_.end() || found->is_null()) && fallback) return *fallback;
        if (found == json_.end()) return field_error(field, Json(), "an integer");
        if (!found->is_number_integer() || found->get<double>() < static_cast<double>(lowest) ||
            found->get<double>() > static_cast<double>(highest))
            return field_error(field, *found, fmt::format("an integer of {} to {}", lowest, highest));
        return found->get<std::int64_t>();
    }
    Error field_error(const char* field, const Json& value, std::string_view expected) const {
        return bad_input("{}: {}.{} is {}, expected {}", file_, where_, field,
                         value.is_null() ? "missing" : printable_json(value), expected);
    }

  private:
    const std::string& file_;
    std::string where_;
    const Json& json_;
};

Result<std::string> text_or_empty(const JsonFile& file, const char* field) {
    DS_ASSIGN(auto value, file.text(field));
    return value.value_or("");
}

Result<bool> flag(const JsonFile& file, const char* field, bool fallback) {
    DS_ASSIGN(const auto value, file.boolean(field));
    return value.value_or(fallback);
}

Result<JsonFile> required_object(const JsonFile& file, const char* field) {
    DS_ASSIGN(auto value, file.object(field));
    if (!value) return file.field_error(field, "an object");
    return std::move(*value);
}

/// Reads a list of integers of 0 to `highest` - 1.
Result<std::vector<int>> integer_list(const JsonFile& file, const char* field, int highest) {
    std::vector<int> values;
    const Json* list = file.find(field);
    if (list == nullptr) return values;
    const std::string expected = fmt::format("a list of integers of 0 to {}", highest - 1);
    if (!list->is_array() || list->size() > 1024) return file.field_error(field, expected);
    for (const Json& value : *list) {
        if (!value.is_number_integer() || value.get<double>() < 0 || value.get<double>() >= highest)
            return file.field_error(field, expected);
        values.push_back(value.get<int>());
    }
    return values;
}

Result<RecordedTarget> read_target(const JsonFile& file) {
    RecordedTarget target;
    DS_ASSIGN(target.name, text_or_empty(file, "name"));
    DS_ASSIGN(target.layers, file.required_count("layers", 4096));
    DS_ASSIGN(target.hidden, file.required_count("hidden", 1 << 20));
    DS_ASSIGN(target.vocab, file.required_count("vocab", max_ids));
    DS_ASSIGN(target.tokens, file.required_count("tokens", target.vocab));
    DS_ASSIGN(target.context, file.required_count("context", 1 << 24));
    DS_ASSIGN(target.tokenizer_hash, text_or_empty(file, "tokenizer_hash"));
    DS_ASSIGN(target.eos, integer_list(file, "eos", target.tokens));
    return target;
}

/// Reads a number in [lowest, highest]; `fallback` if absent.
Result<double> number(const JsonFile& file, const char* field, double lowest, double highest,
                      double fallback) {
    const Json* value = file.find(field);
    if (value == nullptr) return fallback;
    if (!value->is_number() || !(value->get<double>() >= lowest && value->get<double>() <= highest))
        return file.field_error(field, fmt::format("a number of {} to {}", lowest, highest));
    return value->get<double>();
}

Result<Sampling> read_sampling(const JsonFile& file) {
    Sampling sampling;
    DS_ASSIGN(sampling.temperature, number(file, "temperature", 0, 1e4, 0));
    DS_ASSIGN(sampling.top_p, number(file, "top_p", 1e-9, 1, 1));
    DS_ASSIGN(const double top_k, number(file, "top_k", 0, max_ids, 0));
    sampling.top_k = static_cast<int>(top_k);
    const Json* seed = file.find("seed");
    if (seed != nullptr && !seed->is_number_unsigned())
        return file.field_error("seed", "an integer of 0 or more");
    if (seed != nullptr) sampling.seed = seed->get<std::uint64_t>();
    return sampling;
}

Result<RecordedPrompt> read_prompt(const Entry& entry) {
    RecordedPrompt prompt;
    DS_ASSIGN(prompt.id, entry.text("id"));
    DS_ASSIGN(prompt.suite, entry.text("suite"));
    DS_ASSIGN(prompt.category, entry.text("category"));
    DS_ASSIGN(prompt.hash, entry.text("hash"));
    DS_ASSIGN(const auto turn, entry.integer("turn", 0, 1 << 20, 0));
    DS_ASSIGN(prompt.first_row, entry.integer("first_row", 0, max_rows));
    DS_ASSIGN(const auto prompt_tokens, entry.integer("prompt_tokens", 1, 1 << 24));
    DS_ASSIGN(const auto generated, entry.integer("generated_tokens", 1, 1 << 24));
    prompt.turn = static_cast<int>(turn);
    prompt.prompt_tokens = static_cast<int>(prompt_tokens);
    prompt.generated_tokens = static_cast<int>(generated);
    DS_ASSIGN(const std::string finish, entry.text("finish"));
    const auto known = finish_from(finish);
    if (!known || *known == Finish::none)
        return entry.field_error("finish", finish.empty() ? Json() : Json(finish),
                                 "eos, length, context or cancelled");
    prompt.finish = *known;
    return prompt;
}

Status read_prompts(const JsonFile& file, RecordingInfo& info) {
    const Json* list = file.find("prompts");
    if (list == nullptr || !list->is_array() || list->empty())
        return file.field_error("prompts", "a list of at least one prompt");
    for (std::size_t i = 0; i < list->size(); ++i) {
        const Json& json = (*list)[i];
        if (!json.is_object()) return bad_input("{}: prompts[{}] is not an object", file.path(), i);
        DS_ASSIGN(RecordedPrompt prompt,
                  read_prompt(Entry(file.path(), fmt::format("prompts[{}]", i), json)));
        info.prompts.push_back(std::move(prompt));
    }
    return {};
}

Status read_switches(const JsonFile& file, RecordingInfo& info) {
    const Json* list = file.find("template");
    if (list == nullptr) return {};
    for (const Json& one : list->is_array() ? *list : Json::array({nullptr})) {
        if (!one.is_string()) return file.field_error("template", "a list of texts KEY=VALUE");
        info.template_switches.push_back(one.get<std::string>());
    }
    return {};
}

Status read_shard(const JsonFile& file, RecordingInfo& info) {
    DS_ASSIGN(const auto shard, file.object("shard"));
    if (!shard) return {};
    DS_ASSIGN(info.shard_count, shard->required_count("count", 1 << 20));
    DS_ASSIGN(info.shard_index, shard->required_count("index", info.shard_count));
    return {};
}

Status read_times(const JsonFile& file, RecordingInfo& info) {
    DS_ASSIGN(const auto times, file.object("times"));
    if (!times) return {};
    DS_ASSIGN(const auto verify, times->object("verify_ns"));
    const Json* rows = times->find("verify_ns");
    for (auto it = rows == nullptr ? Json::const_iterator() : rows->begin(); verify && it != rows->end();
         ++it) {
        const int m = it.key().size() < 8 ? std::atoi(it.key().c_str()) : 0;
        if (m < 1) return bad_input("{}: times.verify_ns names {} rows", file.path(), it.key());
        DS_ASSIGN(const auto ns, verify->positive(it.key().c_str()));
        if (ns) info.verify_ns[m] = static_cast<TimeNs>(*ns);
    }
    DS_ASSIGN(const auto overhead, times->positive("overhead_ns"));
    if (overhead) info.overhead_ns = static_cast<TimeNs>(*overhead);
    return {};
}

}  // namespace

Result<RecordingInfo> read_recording_info(const std::string& path) {
    DS_ASSIGN(const JsonFile file, JsonFile::read(path, "a recording"));
    DS_ASSIGN(const auto format, file.text("format"));
    if (format != format_name) return file.field_error("format", format_name);
    DS_ASSIGN(const int version, file.required_count("version", 1 << 20));
    if (version > recording_version)
        return bad_input("{}: version is {}, but this program reads versions up to {}; use a newer program",
                         path, version, recording_version);
    RecordingInfo info;
    DS_ASSIGN(info.source, text_or_empty(file, "source"));
    DS_ASSIGN(const JsonFile target, required_object(file, "target"));
    DS_ASSIGN(info.target, read_target(target));
    DS_ASSIGN(const JsonFile sampling, required_object(file, "sampling"));
    DS_ASSIGN(info.sampling, read_sampling(sampling));
    DS_ASSIGN(info.max_new, file.required_count("max_new", 1 << 24));
    DS_ASSIGN(info.ignore_eos, flag(file, "ignore_eos", false));
    DS_ASSIGN(info.raw, flag(file, "raw", false));
    DS_TRY(read_switches(file, info));
    DS_ASSIGN(const auto skipped, file.count("skipped", max_ids));
    info.skipped = skipped.value_or(0);
    DS_ASSIGN(info.backend, text_or_empty(file, "backend"));
    DS_ASSIGN(info.isa, text_or_empty(file, "isa"));
    DS_ASSIGN(info.precision, text_or_empty(file, "precision"));
    DS_ASSIGN(info.aux_layers, integer_list(file, "aux_layers", info.target.layers + 1));
    const Json* rows = file.find("rows");
    if (rows == nullptr || !rows->is_number_integer() || rows->get<double>() < 1 ||
        rows->get<double>() > static_cast<double>(max_rows))
        return file.field_error("rows", "the number of rows");
    info.rows = rows->get<std::int64_t>();
    DS_ASSIGN(info.complete, flag(file, "complete", true));
    DS_TRY(read_shard(file, info));
    DS_TRY(read_prompts(file, info));
    DS_TRY(read_times(file, info));
    return info;
}

std::string to_json_text(const RecordingInfo& info) {
    using Ordered = nlohmann::ordered_json;
    const RecordedTarget& target = info.target;
    const auto text = [](const std::string& value) { return value.empty() ? Ordered() : Ordered(value); };
    Ordered prompts = Ordered::array();
    for (const RecordedPrompt& prompt : info.prompts) {
        prompts.push_back({{"id", prompt.id},
                           {"suite", prompt.suite},
                           {"category", prompt.category},
                           {"turn", prompt.turn},
                           {"hash", prompt.hash},
                           {"first_row", prompt.first_row},
                           {"prompt_tokens", prompt.prompt_tokens},
                           {"generated_tokens", prompt.generated_tokens},
                           {"finish", to_text(prompt.finish)}});
    }
    Ordered verify = Ordered::object();
    for (const auto& [rows, ns] : info.verify_ns) verify[std::to_string(rows)] = ns;
    Ordered document = {{"format", format_name},
                        {"version", recording_version},
                        {"source", text(info.source)},
                        {"target",
                         {{"name", target.name},
                          {"layers", target.layers},
                          {"hidden", target.hidden},
                          {"vocab", target.vocab},
                          {"tokens", target.tokens},
                          {"context", target.context},
                          {"tokenizer_hash", text(target.tokenizer_hash)},
                          {"eos", target.eos}}},
                        {"sampling",
                         {{"temperature", info.sampling.temperature},
                          {"top_p", info.sampling.top_p},
                          {"top_k", info.sampling.top_k},
                          {"seed", info.sampling.seed}}},
                        {"max_new", info.max_new},
                        {"ignore_eos", info.ignore_eos},
                        {"raw", info.raw},
                        {"backend", text(info.backend)},
                        {"isa", text(info.isa)},
                        {"precision", text(info.precision)},
                        {"aux_layers", info.aux_layers},
                        {"rows", info.rows},
                        {"complete", info.complete},
                        {"times",
                         {{"verify_ns", std::move(verify)},
                          {"overhead_ns", info.overhead_ns ? Ordered(*info.overhead_ns) : Ordered()}}},
                        {"prompts", std::move(prompts)}};
    if (!info.template_switches.empty()) document["template"] = info.template_switches;
    if (info.skipped > 0) document["skipped"] = info.skipped;
    if (info.shard_count > 1) document["shard"] = {{"index", info.shard_index}, {"count", info.shard_count}};
    return document.dump(1, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

}  // namespace draftscope
