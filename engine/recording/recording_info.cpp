#include "engine/recording/recording_info.h"

#include "base/fields.h"

namespace draftscope {

static std::string read_text(std::string_view text, Finish& finish) {
    finish = finish_from(text).value_or(Finish::none);
    return finish == Finish::none ? "eos, length, context or cancelled" : "";
}

namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;

constexpr const char* format_name = "draftscope-trace";
constexpr std::int64_t max_rows = std::int64_t{1} << 40;
constexpr int max_ids = 1 << 24, max_tokens = 1 << 24;

// The fields in the order of the file.
constexpr auto target_fields =
    join(DS_FIELDS(RecordedTarget, name),
         required(join(between(1, 4096, DS_FIELDS(RecordedTarget, layers)),
                       between(1, 1 << 20, DS_FIELDS(RecordedTarget, hidden)),
                       between(1, max_ids, DS_FIELDS(RecordedTarget, vocab, tokens)),
                       between(1, 1 << 24, DS_FIELDS(RecordedTarget, context)))),
         null_if_none(DS_FIELDS(RecordedTarget, tokenizer_hash)), DS_FIELDS(RecordedTarget, eos));
constexpr auto sampling_fields =
    join(between(0, 1e4, DS_FIELDS(Sampling, temperature)), between(1e-9, 1, DS_FIELDS(Sampling, top_p)),
         between(0, max_ids, DS_FIELDS(Sampling, top_k)), at_least(0, DS_FIELDS(Sampling, seed)));
constexpr auto prompt_fields = join(
    DS_FIELDS(RecordedPrompt, id, suite, category), between(0, 1 << 20, DS_FIELDS(RecordedPrompt, turn)),
    DS_FIELDS(RecordedPrompt, hash), required(between(0, max_rows, DS_FIELDS(RecordedPrompt, first_row))),
    required(between(1, max_tokens, DS_FIELDS(RecordedPrompt, prompt_tokens, generated_tokens))),
    required(DS_FIELDS(RecordedPrompt, finish)));
constexpr auto source_fields = null_if_none(DS_FIELDS(RecordingInfo, source));
constexpr auto decode_fields =
    join(required(between(1, max_tokens, DS_FIELDS(RecordingInfo, max_new))),
         DS_FIELDS(RecordingInfo, ignore_eos, raw),
         null_if_none(DS_FIELDS(RecordingInfo, backend, isa, precision)),
         at_least(0, DS_FIELDS(RecordingInfo, aux_layers)),
         required(between(1, max_rows, DS_FIELDS(RecordingInfo, rows))), DS_FIELDS(RecordingInfo, complete));
constexpr auto part_fields = omitted_if_none(join(field("template", &RecordingInfo::template_switches),
                                                  between(0, max_ids, DS_FIELDS(RecordingInfo, skipped))));
constexpr auto given_fields =
    join(DS_FIELDS(GivenAgreement, file), between(0, max_rows, DS_FIELDS(GivenAgreement, tokens, agreed)),
         at_least(0, DS_FIELDS(GivenAgreement, largest_gap)));
constexpr auto shard_fields =
    required(join(between(1, 1 << 20, field("index", &RecordingInfo::shard_index)),
                  between(1, 1 << 20, field("count", &RecordingInfo::shard_count))));

/// Reads the fields of an object that must be there.
template <typename Fields, typename Row>
Status read_object(const Fields& fields, const JsonFile& file, const char* name, Row& row) {
    DS_ASSIGN(const auto object, file.object(name));
    return object ? read_fields(fields, *object, row) : Status(file.field_error(name, "an object"));
}

/// Checks that ids lie below `end`.
Status check_ids(const JsonFile& file, const char* name, const std::vector<int>& ids, int end) {
    for (const int id : ids)
        if (id < 0 || id >= end || ids.size() > 1024)
            return file.field_error(name, fmt::format("a list of integers of 0 to {}", end - 1));
    return {};
}

Status read_target(const JsonFile& file, RecordedTarget& target) {
    DS_TRY(read_object(target_fields, file, "target", target));
    DS_ASSIGN(const auto object, file.object("target"));
    if (target.tokens > target.vocab)
        return object->field_error("tokens", fmt::format("an integer from 1 to {}", target.vocab));
    return check_ids(*object, "eos", target.eos, target.tokens);
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
    DS_TRY(read_target(file, info.target));
    DS_TRY(read_object(sampling_fields, file, "sampling", info.sampling));
    DS_TRY(read_fields(join(source_fields, decode_fields, part_fields), file, info));
    DS_TRY(check_ids(file, "aux_layers", info.aux_layers, info.target.layers + 1));
    if (file.find("shard") != nullptr) {
        DS_TRY(read_object(shard_fields, file, "shard", info));
        if (info.shard_index > info.shard_count) return file.field_error("shard", "an index up to the count");
    }
    if (file.find("given") != nullptr) DS_TRY(read_object(given_fields, file, "given", info.given.emplace()));
    DS_ASSIGN(const std::vector<JsonFile> prompts, file.objects("prompts"));
    if (prompts.empty()) return file.field_error("prompts", "a list of at least one prompt");
    for (const JsonFile& prompt : prompts)
        DS_TRY(read_fields(prompt_fields, prompt, info.prompts.emplace_back()));
    DS_TRY(read_times(file, info));
    return info;
}

std::string to_json_text(const RecordingInfo& info) {
    Ordered verify = Ordered::object(), prompts = Ordered::array();
    for (const auto& [rows, ns] : info.verify_ns) verify[std::to_string(rows)] = ns;
    for (const RecordedPrompt& prompt : info.prompts)
        prompts.push_back(write_fields<Ordered>(prompt_fields, prompt));
    Ordered document = {{"format", format_name}, {"version", recording_version}};
    document.update(write_fields<Ordered>(source_fields, info));
    document["target"] = write_fields<Ordered>(target_fields, info.target);
    document["sampling"] = write_fields<Ordered>(sampling_fields, info.sampling);
    document.update(write_fields<Ordered>(decode_fields, info));
    document["times"] = {{"verify_ns", std::move(verify)},
                         {"overhead_ns", to_json_value<Ordered>(info.overhead_ns)}};
    document["prompts"] = std::move(prompts);
    document.update(write_fields<Ordered>(part_fields, info));
    if (info.given) document["given"] = write_fields<Ordered>(given_fields, *info.given);
    if (info.shard_count > 1) document["shard"] = write_fields<Ordered>(shard_fields, info);
    return document.dump(1, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

}  // namespace draftscope
