#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "app/jobs/inspect/contents.h"
#include "app/jobs/resolve/assets.h"
#include "base/format_count.h"
#include "base/json_file.h"
#include "base/mapped_file.h"
#include "engine/draft/drafter_files.h"
#include "engine/formats/hf_folder.h"
#include "engine/recording/recording_info.h"
#include "storage/capture_file.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

/// The longest listing.
constexpr std::size_t max_listed = 24;

Status inspect_capture(const std::string& path, Inspection& out) {
    DS_ASSIGN(const std::vector<RunRow> runs, read_runs(path));
    out.kind = "capture of " + format_count(std::ssize(runs), "run");
    for (const RunRow& run : runs)
        out.add(fmt::format("run {}", run.id),
                fmt::format("{} with {}{}{}, tree {}, {} {}{}, {}", run.target, run.drafter,
                            run.head.empty() ? "" : ", head ", run.head, run.tree, run.backend, run.precision,
                            run.ended == RunEnd::live ? ", without an end" : "", run.started_utc));
    out.next = {"draftscope stats " + path, "draftscope gui " + path, "draftscope check " + path};
    return {};
}

Status inspect_recording(const std::string& path, const ModelFile* target, Inspection& out) {
    DS_ASSIGN(const RecordingInfo info, read_recording_info(path + "/trace.json"));
    const RecordedTarget& model = info.target;
    out.kind = "recording of a target's decode";
    const auto generated =
        std::accumulate(info.prompts.begin(), info.prompts.end(), std::int64_t{0},
                        [](auto sum, const auto& prompt) { return sum + prompt.generated_tokens; });
    out.add("target", fmt::format("{}: {} layers of {} values, {} tokens", model.name, model.layers,
                                  model.hidden, model.tokens));
    out.add("texts",
            fmt::format("{}, {} positions, {} generated{}", format_count(std::ssize(info.prompts), "turn"),
                        info.rows, generated, info.complete ? "" : "; cancelled before the last prompt"));
    out.add("made by", fmt::format("{} on {} {} {}", info.source, info.backend, info.isa, info.precision));
    out.add("feature layers", info.aux_layers.empty()
                                  ? "none: EAGLE-3 cannot be replayed"
                                  : fmt::format("the inputs of layers {}", fmt::join(info.aux_layers, ", ")));
    const bool weights = fs::exists(path + "/weights.safetensors");
    out.add("weights", weights ? "its own embeddings and LM head" : "none: replay needs --model");
    for (const std::string file : {"/trace.safetensors", "/weights.safetensors"})
        if (file[1] == 't' || weights)
            if (const auto opened = open_tensor_file(path + file); !opened.ok())
                out.unread.push_back(opened.error().message);
    if (target != nullptr) {
        compare(out, "hidden size", model.hidden, target->config.hidden);
        compare(out, "vocabulary", model.vocab, target->config.vocab);
        compare(out, "layers", model.layers, target->config.layers);
        compare(out, "tokenizer", model.tokenizer_hash,
                fmt::format("{:016x}", target->tokenizer->fingerprint()));
    }
    out.next = {fmt::format("draftscope replay --recording {} --drafters suffix", path),
                "draftscope advise --recording " + path};
    return {};
}

/// Another published family, or tensors of no known one.
void inspect_others(const Contents& contents, const std::optional<FamilyMatch>& family, Inspection& out) {
    out.kind =
        family ? fmt::format("{} drafter ({})", family->name, family->evidence) : "tensors of no known kind";
    add_sizes(contents, false, out);
    for (const Json& at : {contents.config, contents.config.value("dflash_config", Json::object())})
        for (const char* field :
             {"block_size", "mask_token_id", "target_layer_ids", "aux_hidden_state_layer_ids"})
            if (at.contains(field)) out.add(field, printable_json(at[field]));
    const auto names = contents.tensors().names();
    for (std::size_t i = 0; !family && i < std::min(names.size(), max_listed); ++i) {
        const TensorInfo& info = *contents.tensors().find(names[i]);
        out.add(names[i], fmt::format("{} [{}]", info.type, fmt::join(info.shape, ", ")));
    }
    add_stacks(fmt::format("{}/{}", family ? family->name : "", contents.gguf ? "gguf" : "folder"),
               bad_input("this version does not draft with it"), out);
}

/// Whether the tensors are a whole language model. MTP layers, experts and adapters may be part of one.
bool is_model(const Contents& contents, const std::optional<FamilyMatch>& family) {
    if (!family) return contents.layers() > 0;
    const bool may_be = family->name == "MTP" || family->name == "EAGLE with experts" ||
                        family->name == "EAGLE with latent attention" || family->drafters == "draft-model";
    return may_be && contents.layers() > 1 &&
           contents.part("embed_tokens.weight", "token_embd.weight") != nullptr;
}

Status inspect_checkpoint(const std::string& path, const ModelFile* target, Inspection& out) {
    DS_ASSIGN(const Contents contents, open_contents(path));
    out.unread = contents.unread;
    const TensorFile& tensors = contents.tensors();
    const auto family = find_family(contents.config, tensors);
    if (tensors.metadata("format").starts_with("draftscope-") || tensors.find("ids") != nullptr)
        inspect_head_file(contents, target, out);
    else if (family && (family->name == "Medusa" || family->name == "Hydra"))
        inspect_decoding_heads(contents, family->name == "Hydra", target, out);
    else if (family && family->name == "EAGLE")
        inspect_eagle(contents, target, out);
    else if (is_model(contents, family))
        inspect_model(contents, target, out);
    else
        inspect_others(contents, family, out);
    sample_tensors(contents, out);
    return {};
}

Status inspect_file(const std::string& path, const ModelFile* target, Inspection& out) {
    std::string start(16, '\0');
    std::ifstream(path, std::ios::binary).read(start.data(), std::ssize(start));
    if (start.starts_with("SQLite format 3")) return inspect_capture(path, out);
    if (fs::path(path).filename() == "config.json")
        return inspect_checkpoint(fs::absolute(path).parent_path().string(), target, out);
    if (start.starts_with("GGUF") || start.starts_with("PK\x03\x04") || start[8] == '{' ||
        path.ends_with(".safetensors") || path.ends_with(".index.json"))
        return inspect_checkpoint(path, target, out);
    return bad_input(
        "{}: is no checkpoint, GGUF file, head file, ranking, recording or capture: it begins with \"{}\"",
        path, printable(start.c_str()));
}

/// A folder without a checkpoint: one line for each file that is known.
Status inspect_folder(const std::string& path, Inspection& out) {
    std::vector<std::string> files;
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored))
        if (entry.is_regular_file(ignored)) files.push_back(entry.path());
    std::ranges::sort(files);
    for (const std::string& file : files)
        if (Inspection one; out.facts.size() < max_listed && inspect_file(file, nullptr, one).ok())
            out.add(fs::path(file).filename(), one.kind);
    out.kind = "folder of files; name one of them";
    if (!out.facts.empty()) return {};
    return bad_input("{}: holds no config.json, weights, GGUF file, head file, recording or capture{}", path,
                     other_contents(path));
}

Status inspect_known(const std::string& path, const ModelFile* target, Inspection& out) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) return inspect_file(path, target, out);
    if (fs::exists(path + "/trace.json", ignored)) return inspect_recording(path, target, out);
    const auto contents = open_contents(path);
    return contents.ok() ? inspect_checkpoint(path, target, out) : inspect_folder(path, out);
}

}  // namespace

void add_stacks(const std::string& what, const Result<std::string>& use, Inspection& out) {
    out.stacks.push_back({"Draftscope", use.ok(), use.ok() ? *use : use.error().message});
    std::ifstream file(find_asset("stacks.json"));
    const Json document = Json::parse(file, nullptr, false);
    if (document.is_discarded())
        return add_note(out.odd, "assets/stacks.json is missing; set DRAFTSCOPE_ASSETS");
    const bool other = std::ranges::any_of(out.differences, [](const Fact& one) {
        return one.name == "hidden size" || one.name == "tokenizer";
    });
    const char* obstacle = !out.unread.empty() ? "not as it is; once it is whole: "
                           : other             ? "not for this target; "
                                               : "";
    for (const Json& row : document["rows"]) {
        if (std::ranges::find(row["of"], Json(what)) == row["of"].end()) continue;
        std::string how = row["how"];
        for (std::size_t at = 0; (at = how.find("PATH", at)) != how.npos; at += out.path.size())
            how.replace(at, 4, out.path);
        out.stacks.push_back({row["stack"], row.value("loads", true) && *obstacle == '\0', obstacle + how});
    }
}

Result<Inspection> inspect_path(const std::string& given, const std::string& target) {
    Inspection out;
    DS_ASSIGN(out.path, find_checkpoint("inspect", given, out.odd));
    std::optional<ModelFile> model;
    if (!target.empty()) {
        DS_ASSIGN(const std::string path, find_checkpoint("--target", target, out.odd));
        DS_ASSIGN(model, open_model_file(path));
    }
    DS_TRY(inspect_known(out.path, model ? &*model : nullptr, out));
    return out;
}

}  // namespace draftscope
