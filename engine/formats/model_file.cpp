#include "engine/formats/model_file.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/formats/dequant.h"
#include "engine/formats/gguf.h"
#include "engine/formats/gguf_model.h"
#include "engine/formats/hf_folder.h"
#include "engine/formats/synthetic_model.h"

namespace draftscope {
namespace {

/// An unusable template does not prevent opening: raw prompts need none.
Status read_chat(const GgufFile& file, ModelFile& out) {
    constexpr std::string_view key = "tokenizer.chat_template";
    std::map<std::string, std::string> named;
    DS_ASSIGN(const auto source, file.text(key));
    if (source && !source->empty()) named["default"] = *source;
    const nlohmann::json others = file.values_below(fmt::format("{}.", key));
    for (const auto& [name, text] : others.items())
        if (text.is_string()) named[name] = text.get<std::string>();
    Notes notes;
    const std::string chosen = choose_template(named, file.path(), notes);
    out.chat =
        ChatTemplate::from_source(chosen, file.path(), bos_eos_tokens(*out.tokenizer), std::move(notes));
    return {};
}

}  // namespace

bool ModelFile::has_four_bits() const {
    return draftscope::has_four_bits(quantisation);
}

kernels::Precision ModelFile::auto_precision() const {
    using kernels::Precision;
    if (has_four_bits()) return Precision::int4;
    return quantised ? Precision::int8 : Precision::bf16;
}

kernels::Precision ModelFile::packed_precision(kernels::Precision precision, const TensorInfo& tensor) const {
    const bool in_more_bits = has_four_bits() && !draftscope::has_four_bits(tensor.type);
    return precision == kernels::Precision::int4 && in_more_bits ? kernels::Precision::int8 : precision;
}

Result<ModelFile> open_model_file(const std::string& path) {
    if (is_synthetic_model(path)) return make_synthetic_model(path);
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) return open_hf_folder(path);
    DS_ASSIGN(GgufFile file, GgufFile::open(path));
    DS_ASSIGN(const Architecture* architecture, gguf_architecture(file));
    ModelFile out;
    DS_ASSIGN(out.config, read_gguf_config(file, *architecture, out.notes));
    DS_ASSIGN(TokenizerSpec spec, read_gguf_tokenizer(file, out.notes));
    DS_TRY(fit_to_embedding(spec, out.config.vocab));
    DS_ASSIGN(out.tokenizer, Tokenizer::create(std::move(spec)));
    DS_TRY(read_chat(file, out));
    const TensorType& type = *file.tensors().dominant_type();
    out.quantisation = type.name;
    out.quantised = type.quantised;
    out.weights = make_gguf_weights(std::move(file), out.config.head_dim, architecture->permuted_qk);
    return out;
}

}  // namespace draftscope
