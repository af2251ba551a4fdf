#include "engine/heads/artefact.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/parse.h"
#include "engine/formats/model_file.h"
#include "engine/formats/synthetic_model.h"
#include "engine/heads/synthetic_artefact.h"
#include "kernels/packing.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;

constexpr std::string_view format_name = "draftscope-head";
constexpr int format_version = 1;

std::string hex(std::uint64_t value) {
    return fmt::format("{:016x}", value);
}

/// Metadata of one file; errors name file and key.
class Metadata {
  public:
    explicit Metadata(const WeightSource& file) : file_(file) {}

    std::string text(std::string_view key) const { return file_.metadata(key); }
    Error wrong(std::string_view key, std::string_view expected) const {
        return bad_input("{}: metadata '{}' is \"{}\", expected {}", file_.path(), key, printable(text(key)),
                         expected);
    }
    Result<int> extent(std::string_view key) const {
        const auto value = parse_number<int>(text(key));
        if (!value || *value < 1 || *value > max_extent) return wrong(key, "a whole number above 0");
        return *value;
    }
    Result<Json> json(std::string_view key, Json::value_t type, std::string_view expected) const {
        const std::string found = text(key);
        if (found.empty()) return Json(type);
        Json value = Json::parse(found, nullptr, false);
        if (value.type() != type) return wrong(key, expected);
        return value;
    }

  private:
    const WeightSource& file_;
};

Result<ArtefactInfo> read_info(const WeightSource& file) {
    const Metadata metadata(file);
    if (metadata.text("format") != format_name)
        return bad_input("{}: not head weights: metadata 'format' is \"{}\", expected \"{}\"", file.path(),
                         printable(metadata.text("format")), format_name);
    const auto version = parse_number<int>(metadata.text("version"));
    if (!version || *version < 1) return metadata.wrong("version", "a whole number above 0");
    if (*version > format_version)
        return bad_input(
            "{}: head weights of version {} are too new, this "
            "program reads up to {}; update the program",
            file.path(), *version, format_version);
    ArtefactInfo info;
    info.head = metadata.text("head");
    info.target = metadata.text("target");
    const auto tokenizer = parse_number<std::uint64_t>(metadata.text("tokenizer_fingerprint"), 16);
    if (!tokenizer) return metadata.wrong("tokenizer_fingerprint", "16 hexadecimal digits");
    info.tokenizer = *tokenizer;
    info.drafter = metadata.text("drafter");
    info.drafter_hash = metadata.text("drafter_hash");
    info.drafter_weights = metadata.text("drafter_weights");
    DS_ASSIGN(info.vocab, metadata.extent("vocab"));
    DS_ASSIGN(info.hidden, metadata.extent("hidden"));
    const std::string trained = metadata.text("trained");
    if (trained != "post-hoc" && trained != "joint") return metadata.wrong("trained", "post-hoc or joint");
    info.joint = trained == "joint";
    DS_ASSIGN(const Json parameters,
              metadata.json("parameters", Json::value_t::object, "a JSON object of strings"));
    for (const auto& [name, value] : parameters.items()) {
        if (!value.is_string()) return metadata.wrong("parameters", "a JSON object of strings");
        info.parameters.emplace(name, value.get<std::string>());
    }
    DS_ASSIGN(const Json prompts, metadata.json("prompts", Json::value_t::array, "a JSON list of strings"));
    for (const Json& value : prompts) {
        if (!value.is_string()) return metadata.wrong("prompts", "a JSON list of strings");
        info.prompts.push_back(value.get<std::string>());
    }
    DS_ASSIGN(const Json report, metadata.json("report", Json::value_t::object, "a JSON object"));
    info.report = report.dump();
    return info;
}

}  // namespace

Result<HeadArtefact> HeadArtefact::synthetic(const std::string& target, const HeadSpec& spec) {
    DS_ASSIGN(SyntheticArtefact made, make_synthetic_artefact(target, spec));
    return HeadArtefact(std::move(made.info), std::move(made.tensors));
}

Result<HeadArtefact> HeadArtefact::open(const std::string& path, std::string_view head) {
    if (is_synthetic_model(path)) return synthetic(path, {std::string(head), {}});
    DS_ASSIGN(std::shared_ptr<const WeightSource> file, open_safetensors(path));
    DS_ASSIGN(ArtefactInfo info, read_info(*file));
    if (info.head != head)
        return bad_input("{}: weights of head {}, expected head {}", path, printable(info.head), head);
    return HeadArtefact(std::move(info), std::move(file));
}

Status HeadArtefact::fits(const HeadWeights& weights) const {
    const auto other = [&](std::string_view what, const auto& made_for, const auto& have) {
        return bad_input(
            "{}: head {} was fitted for {} {}, but the "
            "run has {}; fit one with draftscope fit",
            path(), info_.head, what, made_for, have);
    };
    if (info_.vocab != weights.vocab) return other("vocabulary size", info_.vocab, weights.vocab);
    if (info_.hidden != weights.hidden) return other("hidden size", info_.hidden, weights.hidden);
    if (info_.synthetic) return {};
    if (weights.tokenizer != 0 && info_.tokenizer != weights.tokenizer)
        return other("tokenizer", hex(info_.tokenizer), hex(weights.tokenizer));
    if (!weights.target.empty() && info_.target != weights.target)
        return other("target", printable(info_.target), weights.target);
    if (!weights.drafter.empty() && !info_.drafter.empty() && info_.drafter != weights.drafter)
        return other("drafter", printable(info_.drafter), weights.drafter);
    if (!weights.drafter_hash.empty() && !info_.drafter_hash.empty() &&
        info_.drafter_hash != weights.drafter_hash)
        return other("drafter weights", printable(info_.drafter_hash), weights.drafter_hash);
    return {};
}

Status HeadArtefact::check_parameters(const HeadSpec& spec) const {
    for (const auto& [name, value] : spec.params) {
        const auto made = info_.parameters.find(name);
        if (made == info_.parameters.end() || made->second == value) continue;
        return bad_input("{}: head {} was fitted with {}={}, not {}={}; fit one with draftscope fit", path(),
                         info_.head, name, printable(made->second), name, value);
    }
    return {};
}

Result<int> HeadArtefact::count(std::string_view name) const {
    const auto found = info_.parameters.find(name);
    const auto value = found == info_.parameters.end() ? std::nullopt : parse_number<int>(found->second);
    if (!value || *value < 1 || *value > max_extent)
        return bad_input("{}: metadata 'parameters' has no whole number {} above 0", path(), name);
    return *value;
}

int HeadArtefact::levels(std::string_view name) const {
    int count = 0;
    while (tensors_->find(fmt::format("{}.{}", name, count)) != nullptr) ++count;
    return count;
}

std::string HeadArtefact::at_level(std::string_view name, int level) const {
    const int count = levels(name);
    if (count == 0) return std::string(name);
    return fmt::format("{}.{}", name, std::clamp(level, 0, count - 1));
}

Result<kernels::Matrix> HeadArtefact::matrix(kernels::Backend& backend, kernels::Precision precision,
                                             const std::string& name, int n, int k) const {
    const TensorInfo* tensor = tensors_->find(name);
    if (tensor == nullptr) return bad_input("{}: tensor '{}' is missing", path(), name);
    if (tensor->shape.size() != 2 || tensor->rows() < 1 || tensor->cols() < 1 ||
        tensor->rows() > max_extent || tensor->cols() > max_extent || (n >= 0 && tensor->rows() != n) ||
        (k >= 0 && tensor->cols() != k)) {
        const auto extent_text = [](int extent) {
            return extent < 0 ? std::string("any") : std::to_string(extent);
        };
        return bad_input("{}: tensor '{}' has shape [{}], expected [{}, {}]", path(), name,
                         fmt::join(tensor->shape, ", "), extent_text(n), extent_text(k));
    }
    if (tensor->type == "I8") return scaled_matrix(backend, precision, *tensor);
    const int rows = static_cast<int>(tensor->rows()), cols = static_cast<int>(tensor->cols());
    if (const auto values = tensors_->random_values(*tensor)) {
        const kernels::RandomRows random{rows, *values};
        if (auto made = kernels::pack_random(backend, cols, {&random, 1})) return std::move(*made);
    }
    return kernels::Matrix::pack(backend, precision, rows, cols,
                                 [&](int row, float* out) { tensors_->read_row(*tensor, row, out); });
}

/// Integers with one scale per 64 columns of a row.
Result<kernels::Matrix> HeadArtefact::scaled_matrix(kernels::Backend& backend, kernels::Precision precision,
                                                    const TensorInfo& tensor) const {
    constexpr std::int64_t group = 64;
    const std::string name = tensor.name + ".scales";
    const TensorInfo* scales = tensors_->find(name);
    if (scales == nullptr) return bad_input("{}: tensor '{}' is missing", path(), name);
    const std::int64_t groups = (tensor.cols() + group - 1) / group;
    if (scales->shape != std::vector<std::int64_t>{tensor.rows(), groups})
        return bad_input("{}: tensor '{}' has shape [{}], expected [{}, {}]", path(), name,
                         fmt::join(scales->shape, ", "), tensor.rows(), groups);
    return kernels::Matrix::pack(backend, precision, static_cast<int>(tensor.rows()),
                                 static_cast<int>(tensor.cols()), [&](int row, float* out) {
                                     std::vector<float> scale(groups);
                                     tensors_->read_row(*scales, row, scale.data());
                                     tensors_->read_row(tensor, row, out);
                                     for (std::int64_t c = 0; c < tensor.cols(); ++c)
                                         out[c] *= scale[c / group];
                                 });
}

Result<std::vector<float>> HeadArtefact::vector_or_zeros(const std::string& name, int size) const {
    std::vector<float> values(size, 0.0f);
    const TensorInfo* tensor = tensors_->find(name);
    if (tensor == nullptr) return values;
    if (tensor->shape.size() != 1 || tensor->cols() != size)
        return bad_input("{}: tensor '{}' has shape [{}], expected [{}]", path(), name,
                         fmt::join(tensor->shape, ", "), size);
    tensors_->read_row(*tensor, 0, values.data());
    return values;
}

Result<std::vector<TokenId>> HeadArtefact::ascending_ids(const std::string& name) const {
    DS_ASSIGN(const auto values, tensors_->read_integers(name));
    std::vector<TokenId> ids;
    ids.reserve(values.size());
    for (const std::int64_t value : values) {
        if (value < 0 || value >= info_.vocab || (!ids.empty() && value <= ids.back()))
            return bad_input("{}: tensor '{}' contains {} at index {}; expected ascending ids below {}",
                             path(), name, value, ids.size(), info_.vocab);
        ids.push_back(static_cast<TokenId>(value));
    }
    if (ids.empty()) return bad_input("{}: tensor '{}' is empty", path(), name);
    return ids;
}

Result<std::vector<int>> HeadArtefact::token_map(const std::string& name, int limit) const {
    DS_ASSIGN(const auto values, tensors_->read_integers(name));
    if (values.size() != static_cast<std::size_t>(info_.vocab))
        return bad_input("{}: tensor '{}' has {} values, expected one per token of {}", path(), name,
                         values.size(), info_.vocab);
    std::vector<int> map;
    map.reserve(values.size());
    for (const std::int64_t value : values) {
        if (value < 0 || value >= limit)
            return bad_input("{}: tensor '{}' contains {} for token {}, expected 0 to {}", path(), name,
                             value, map.size(), limit - 1);
        map.push_back(static_cast<int>(value));
    }
    return map;
}

Status save_artefact(const std::string& path, const ArtefactInfo& info,
                     std::span<const TensorToSave> tensors) {
    const std::map<std::string, std::string> metadata = {{"format", std::string(format_name)},
                                                         {"version", std::to_string(format_version)},
                                                         {"head", info.head},
                                                         {"target", info.target},
                                                         {"tokenizer_fingerprint", hex(info.tokenizer)},
                                                         {"drafter", info.drafter},
                                                         {"drafter_hash", info.drafter_hash},
                                                         {"drafter_weights", info.drafter_weights},
                                                         {"vocab", std::to_string(info.vocab)},
                                                         {"hidden", std::to_string(info.hidden)},
                                                         {"trained", info.joint ? "joint" : "post-hoc"},
                                                         {"parameters", Json(info.parameters).dump()},
                                                         {"prompts", Json(info.prompts).dump()},
                                                         {"report", info.report}};
    return save_safetensors(path, tensors, metadata);
}

bool is_head_artefact(const std::string& path) {
    const auto file = open_safetensors(path);
    return file.ok() && (*file)->metadata("format") == format_name;
}

Result<HeadArtefact> required_artefact(const HeadSpec& spec, const HeadFiles& artefacts) {
    if (artefacts.artefact_path.empty())
        return bad_input(
            "head {0}: no weights for this target and drafter; make them with {1}, or pass a file with "
            "--head-weights {0}=FILE",
            spec.id, artefacts.remedy.empty() ? "draftscope fit " + spec.id : artefacts.remedy);
    if (is_synthetic_model(artefacts.artefact_path))
        return HeadArtefact::synthetic(artefacts.artefact_path, spec);
    DS_ASSIGN(HeadArtefact artefact, HeadArtefact::open(artefacts.artefact_path, spec.id));
    DS_TRY(artefact.check_parameters(spec));
    return artefact;
}

std::vector<std::string> files_of(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code error;
    if (!fs::is_directory(path, error)) return {path};
    std::vector<std::string> out;
    for (const fs::directory_entry& entry : fs::directory_iterator(path, error))
        if (entry.is_regular_file(error)) out.push_back(entry.path().string());
    std::ranges::sort(out);
    return out;
}

Result<std::string> checkpoint_hash(const std::string& path) {
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) {
        const std::string usual = (std::filesystem::path(path) / "model.safetensors").string();
        std::vector<std::string> files = files_of(path);
        std::erase_if(files, [](const std::string& file) {
            return !file.ends_with(".safetensors") && !file.ends_with(".bin") && !file.ends_with(".pt");
        });
        if (files.size() <= 1 || std::ranges::find(files, usual) != files.end())
            return checkpoint_hash(files.size() == 1 ? files.front() : usual);
        std::string all;
        for (const std::string& file : files) {
            DS_ASSIGN(const std::string one, checkpoint_hash(file));
            all += one;
        }
        return hex(fnv1a(all));
    }
    DS_ASSIGN(const auto mapped, MappedFile::open(path, "a checkpoint"));
    return hex(sampled_hash(std::as_bytes(mapped->bytes())));
}

std::string prompt_hash(std::string_view text) {
    constexpr std::string_view blank = " \t\r\n\f\v";
    const std::size_t first = text.find_first_not_of(blank);
    if (first == std::string_view::npos) return hex(fnv1a(std::string_view()));
    return hex(fnv1a(text.substr(first, text.find_last_not_of(blank) - first + 1)));
}

}  // namespace draftscope
