#include "engine/recording/recorded_target.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/json_file.h"
#include "engine/formats/model_config.h"
#include "engine/formats/model_file.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* embedding_name = "model.embed_tokens.weight";
constexpr const char* head_name = "lm_head.weight";

/// The two tensors, from one or several safetensors files, under the names of a target.
class EmbeddingAndHeadWeights final : public WeightSource {
  public:
    explicit EmbeddingAndHeadWeights(std::string path) : path_(std::move(path)) {}

    Status add(const std::string& file) {
        DS_ASSIGN(auto source, open_safetensors(file));
        for (const auto& [stored, name] :
             {std::pair(embedding_name, "token_embd.weight"), std::pair(head_name, "output.weight")}) {
            const TensorInfo* found = source->find(stored);
            if (found == nullptr || find(name) != nullptr) continue;
            TensorInfo info = *found;
            info.name = name;
            tensors_.push_back({std::move(info), source.get(), found});
        }
        sources_.push_back(std::move(source));
        return {};
    }

    const std::string& path() const override { return path_; }
    const TensorInfo* find(std::string_view name) const override {
        for (const Tensor& tensor : tensors_)
            if (tensor.info.name == name) return &tensor.info;
        return nullptr;
    }
    std::vector<std::string> names() const override {
        std::vector<std::string> out;
        for (const Tensor& tensor : tensors_) out.push_back(tensor.info.name);
        return out;
    }
    void read_row(const TensorInfo& tensor, std::int64_t row, float* out) const override {
        for (const Tensor& recorded : tensors_)
            if (recorded.info.name == tensor.name) recorded.source->read_row(*recorded.stored, row, out);
    }

  private:
    struct Tensor {
        TensorInfo info;
        const WeightSource* source;
        const TensorInfo* stored;
    };
    std::string path_;
    std::vector<std::unique_ptr<WeightSource>> sources_;
    std::vector<Tensor> tensors_;
};

/// The files of a model folder that contain the two tensors.
Result<std::set<std::string>> find_weight_files(const std::string& folder) {
    const fs::path single_file = fs::path(folder) / "model.safetensors";
    DS_ASSIGN(const auto index, JsonFile::read_if_present(single_file.string() + ".index.json"));
    std::error_code ignored;
    // As in open_hf_weights(), a whole file comes before an index.
    if (!index || fs::exists(single_file, ignored)) return std::set<std::string>{single_file.string()};
    DS_ASSIGN(const auto map, index->object("weight_map"));
    if (!map) return index->field_error("weight_map", "an object");
    std::set<std::string> files;
    for (const char* name : {embedding_name, head_name}) {
        DS_ASSIGN(const auto file, map->text(name));
        if (!file) continue;
        if (fs::path(*file).filename() != *file)
            return bad_input("{}: weight_map.{} is not a file of the folder", index->path(), name);
        files.insert((fs::path(folder) / *file).string());
    }
    return files;
}

/// Opens the weights and names their dominant type, with the model's config as far as a file tells it.
Result<ModelFile> open_weights(const DecodeRecording& recording, const std::string& model) {
    ModelFile out;
    std::error_code ignored;
    if (recording.weights_path().empty() && !fs::is_directory(model, ignored)) {
        if (model.empty())
            return bad_input(
                "{}: has no weights.safetensors; name the target with --model, because its LM head and "
                "embedding are needed",
                recording.folder());
        DS_ASSIGN(ModelFile file, open_model_file(model));
        out.config = std::move(file.config);
        out.weights = std::move(file.weights);
        out.quantisation = file.quantisation;
        return out;
    }
    auto weights = std::make_unique<EmbeddingAndHeadWeights>(
        recording.weights_path().empty() ? model : recording.weights_path());
    std::set<std::string> files = {recording.weights_path()};
    if (recording.weights_path().empty()) {
        DS_ASSIGN(files, find_weight_files(model));
    }
    for (const std::string& file : files) DS_TRY(weights->add(file));
    if (weights->find("token_embd.weight") == nullptr)
        return bad_input("{}: tensor '{}' is missing", weights->path(), embedding_name);
    out.weights = std::move(weights);
    if (model.empty()) return out;
    if (auto file = open_model_file(model); file.ok()) out.config = std::move(file->config);
    return out;
}

}  // namespace

Result<std::unique_ptr<Target>> make_recorded_target(const DecodeRecording& recording,
                                                     const std::string& model, kernels::Backend& backend,
                                                     kernels::Precision precision) {
    const RecordedTarget& from = recording.info().target;
    DS_ASSIGN(ModelFile file, open_weights(recording, model));
    file.config.architecture = head_only_architecture;
    file.config.name = from.name;
    file.config.layers = from.layers;
    file.config.hidden = from.hidden;
    file.config.vocab = from.vocab;
    file.config.context = from.context;
    file.config.tied_head = file.weights->find("output.weight") == nullptr;
    for (const char* name : {"token_embd.weight", "output.weight"}) {
        const TensorInfo* tensor = file.weights->find(name);
        if (tensor == nullptr) continue;
        if (tensor->rows() != from.vocab || tensor->cols() != from.hidden || tensor->shape.size() != 2)
            return bad_input(
                "{}: {} is {} x {}, the recorded target has a vocabulary of {} and hidden size {}: "
                "it was recorded from another model",
                file.weights->path(), name, tensor->rows(), tensor->cols(), from.vocab, from.hidden);
    }
    return Target::build(std::move(file), backend, precision);
}

}  // namespace draftscope
