#include <algorithm>
#include <array>
#include <set>

#include "app/jobs/inspect/contents.h"
#include "base/mapped_file.h"
#include "engine/heads/artefact.h"

namespace draftscope {
namespace {

/// A layout of Medusa's and Hydra's heads, by a part of its tensors' names. The first that matches counts.
struct HeadLayout {
    std::string_view tensors;
    const char *id, *text;
};
constexpr std::array<HeadLayout, 4> layouts = {
    {{"hydra_mlp.", "zankner", "zankner's"},
     {"medusa_layers.", "tensorrt", "Model-Optimizer (TensorRT-LLM)"},
     {"blocks.", "vllm", "vLLM"},
     {"", "fasterdecoding", "FasterDecoding"}}};

}  // namespace

void inspect_decoding_heads(const Contents& contents, bool hydra, const ModelFile* target, Inspection& out) {
    const TensorFile& tensors = contents.tensors();
    int heads = 0;
    std::int64_t hidden = 0, rows = 0;
    const HeadLayout* layout = &layouts.back();
    for (const std::string& name : tensors.names()) {
        const TensorInfo& info = *tensors.find(name);
        // The first number in a name is the head's.
        if (const std::size_t digit = name.find_first_of("0123456789"); digit != name.npos)
            heads = std::max(heads, 1 + number_at(name, digit));
        layout = std::min(layout, &*std::ranges::find_if(layouts, [&](const HeadLayout& one) {
                              return name.find(one.tensors) != name.npos;
                          }));
        if (info.shape.size() != 2) continue;
        hidden = hidden == 0 ? info.rows() : std::min(hidden, info.rows());
        rows = std::max(rows, info.rows());
        hydra |= name.ends_with("0.linear.weight") && info.cols() > info.rows();
    }
    const char* id = hydra ? "hydra" : "medusa";
    out.kind = fmt::format("{} drafter, layout {}", hydra ? "Hydra" : "Medusa", layout->text);
    add_sizes(contents, false, out);
    out.add("heads", fmt::format("{} of {} values", heads, hidden));
    out.add("LM head", rows > hidden ? fmt::format("its own, {} rows", rows) : "the target's");
    Result<std::string> use = fmt::format("--drafter {}:{}", id, contents.path);
    if (target != nullptr) {
        compare(out, "hidden size", hidden, target->config.hidden);
        if (hidden != target->config.hidden) use = bad_input("it was made for another hidden size");
        if (rows > hidden && contents.part("token_map") == nullptr)
            compare(out, "vocabulary", rows, target->config.vocab);
    }
    add_stacks(fmt::format("{}/{}", id, layout->id), use, out);
}

void inspect_head_file(const Contents& contents, const ModelFile* target, Inspection& out) {
    const TensorFile& tensors = contents.tensors();
    const std::string head = tensors.metadata("head"),
                      fingerprint = tensors.metadata("tokenizer_fingerprint");
    out.kind = head.empty() ? "token ranking, for heads with a static vocabulary" : "weights of head " + head;
    for (const char* key : {"target", "drafter", "trained", "source", "vocab", "hidden"})
        if (const std::string text = tensors.metadata(key); !text.empty()) out.add(key, printable(text));
    if (const auto ids = tensors.read_integers("ids"); ids.ok() && !ids->empty()) {
        const std::set<std::int64_t> distinct(ids->begin(), ids->end());
        out.add("tokens", fmt::format("{}, {} to {}", ids->size(), *distinct.begin(), *distinct.rbegin()));
        if (distinct.size() < ids->size())
            add_note(out.odd, "{} ids occur more than once", ids->size() - distinct.size());
    }
    if (const std::string text = tensors.metadata("parameters"); !text.empty())
        out.add("head parameters", printable(text));
    if (fingerprint.empty())
        add_note(out.odd, "names no tokenizer: nothing can check that its ids are the target's");
    if (target != nullptr && !fingerprint.empty())
        compare(out, "tokenizer", fingerprint, fmt::format("{:016x}", target->tokenizer->fingerprint()));
    add_sizes(contents, false, out);
    const std::string id = head.empty() ? "fr-spec" : head == "rdk" ? "fr-spec+rdk" : head;
    Result<std::string> use =
        fmt::format("--head {} --head-weights {}={}", id, head.empty() ? id : head, contents.path);
    if (const auto found = HeadArtefact::open(contents.path, head); !head.empty() && !found.ok())
        use = found.error();
    add_stacks(!head.empty()                             ? "head"
               : contents.path.ends_with(".safetensors") ? "ranking/safetensors"
                                                         : "ranking/torch",
               use, out);
}

}  // namespace draftscope
