#include "engine/transformer/target.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "base/numel.h"
#include "engine/formats/model_config.h"
#include "engine/transformer/decoder_layer.h"
#include "engine/transformer/target_pass.h"
#include "engine/weights/memory_check.h"
#include "engine/weights/weight_packing.h"
#include "kernels/host_rows.h"

namespace draftscope {
namespace {

bool is_head_only(const ModelConfig& config) {
    return config.architecture == head_only_architecture;
}

Status check_config(const ModelConfig& config, const std::string& file) {
    const auto positive = [&](int value, const char* field) -> Status {
        if (value > 0) return {};
        return bad_input("{}: {} is {}, must be positive", file, field, value);
    };
    DS_TRY(positive(config.layers, "number of layers"));
    DS_TRY(positive(config.hidden, "hidden size"));
    if (is_head_only(config)) return {};
    DS_TRY(positive(config.heads, "number of heads"));
    DS_TRY(positive(config.kv_heads, "number of key/value heads"));
    DS_TRY(positive(config.head_dim, "head size"));
    DS_TRY(positive(config.ffn, "feed-forward size"));
    DS_TRY(positive(config.vocab, "vocabulary size"));
    DS_TRY(positive(config.context, "context length"));
    if (config.heads % config.kv_heads != 0) {
        return bad_input("{}: {} heads are not a multiple of {} key/value heads", file, config.heads,
                         config.kv_heads);
    }
    return {};
}

LayerShape layer_shape(const ModelConfig& config) {
    return {config.hidden, config.heads, config.kv_heads, config.head_dim, config.ffn, config.norm_eps};
}

/// Loads the norms and biases of a layer that the model's family has.
Status load_layer_vectors(const WeightSource& source, const ModelConfig& config, const std::string& prefix,
                          DecoderLayer& layer) {
    const auto read = [&](const char* name, int size, std::vector<float>& out) -> Status {
        DS_ASSIGN(out, read_vector(source, prefix + name, size, "from the model's config"));
        return {};
    };
    const int d = config.hidden;
    DS_TRY(read(config.post_norms ? "post_attention_norm.weight" : "attn_norm.weight", d,
                config.post_norms ? layer.attn_post_norm : layer.attn_norm));
    DS_TRY(read(config.post_norms ? "post_ffw_norm.weight" : "ffn_norm.weight", d,
                config.post_norms ? layer.ffn_post_norm : layer.ffn_norm));
    if (config.qk_norm != QkNorm::none) {
        DS_TRY(read("attn_q_norm.weight", config.q_norm_width(), layer.q_norm));
        DS_TRY(read("attn_k_norm.weight", config.k_norm_width(), layer.k_norm));
    }
    if (!config.qkv_bias) return {};
    const int kv_width = config.kv_heads * config.head_dim;
    std::vector<float> part;
    for (const auto& [name, width] :
         {std::pair("attn_q.bias", config.heads * config.head_dim), std::pair("attn_k.bias", kv_width),
          std::pair("attn_v.bias", kv_width)}) {
        DS_TRY(read(name, width, part));
        layer.qkv_bias.insert(layer.qkv_bias.end(), part.begin(), part.end());
    }
    return {};
}

void plan_layer(const LayerShape& shape, int index, std::vector<PlannedMatrix>& plan) {
    const std::string prefix = fmt::format("blk.{}.", index);
    const auto stack = [&](const char* name, std::vector<StackedTensor> parts, int cols) {
        for (StackedTensor& part : parts) part.name = prefix + part.name;
        plan.push_back({prefix + name, std::move(parts), cols, "from the model's config"});
    };
    stack("attn_qkv",
          {{"attn_q.weight", shape.q_width()},
           {"attn_k.weight", shape.kv_width()},
           {"attn_v.weight", shape.kv_width()}},
          shape.hidden);
    stack("attn_output", {{"attn_output.weight", shape.hidden}}, shape.q_width());
    stack("ffn_gate_up", {{"ffn_gate.weight", shape.ffn}, {"ffn_up.weight", shape.ffn}}, shape.hidden);
    stack("ffn_down", {{"ffn_down.weight", shape.hidden}}, shape.ffn);
}

/// Every packed matrix of a model in the order in which load_layers() loads them, the LM head last.
std::vector<PlannedMatrix> make_plan(const ModelFile& file, const LayerShape& shape,
                                     kernels::Precision precision) {
    const ModelConfig& config = file.config;
    std::vector<PlannedMatrix> plan;
    for (int i = 0; !is_head_only(config) && i < config.layers; ++i) plan_layer(shape, i, plan);
    plan.push_back({"output",
                    {{config.tied_head ? "token_embd.weight" : "output.weight", config.vocab}},
                    config.hidden,
                    {}});
    for (PlannedMatrix& matrix : plan) {
        // A stack has one precision, int8 if a part has more than four bits.
        matrix.precision = precision;
        for (const StackedTensor& part : matrix.parts)
            if (const TensorInfo* info = file.weights->find(part.name))
                matrix.precision = file.packed_precision(matrix.precision, *info);
    }
    return plan;
}

Result<DecoderLayer> load_layer(WeightLoader& loader, const ModelFile& file, int index) {
    DecoderLayer layer;
    DS_TRY(load_layer_vectors(*file.weights, file.config, fmt::format("blk.{}.", index), layer));
    DS_ASSIGN(layer.qkv, loader.next());
    DS_ASSIGN(layer.attn_out, loader.next());
    DS_ASSIGN(layer.gate_up, loader.next());
    DS_ASSIGN(layer.down, loader.next());
    return layer;
}

}  // namespace

struct Target::Impl {
    kernels::Backend* backend = nullptr;
    ModelFile file;
    LayerShape shape;
    kernels::Precision precision = kernels::Precision::f32;
    std::string path;
    std::vector<DecoderLayer> layers;
    std::vector<float> output_norm;
    kernels::Matrix lm_head;
    kernels::RopeTable rope;
    std::size_t layer_bytes = 0;
    TargetPass pass;
    kernels::EmbeddingTable embeddings;

    DecoderBatch batch;
    std::vector<int> no_slots;
    std::vector<float> residual;  ///< [rows, d]
    std::vector<float> gathered;  ///< [logit rows, d], gathered
    std::vector<int> node_path;

    LoadReport load_report;

    Status load_weights(const ProgressFn& progress, const WeightCacheOptions& cache);
    Status load_layers(WeightLoader& loader, const ProgressFn& progress);
    Status check(const ForwardRequest& request) const;
    Status check_sequence(const SequenceTokens& sequence) const;
    void add_rows(const SequenceTokens& sequence);
    /// Runs the rows of `sequences` through all layers and the final norm. `aux` may be null. Only a device
    /// fills `logits` [rows, V].
    Status run(std::span<const SequenceTokens> sequences, std::span<const int> aux_layers, float* hidden,
               float* aux, float* logits = nullptr);
    void compute_logits(const ForwardRequest& request, ForwardOutput& out);
    void embed(std::span<const TokenId> tokens, Rows<float> out) const;
    Status add_rows(const TreePass& tree_pass);
    /// Bytes of keys and values of the latest pass, over all layers.
    std::uint64_t kv_bytes() const {
        const std::size_t value = kernels::bytes_per_value(kv_type_for(precision));
        return static_cast<std::uint64_t>(file.config.layers) * batch.kv_bytes(shape.kv_width(), value);
    }
};

Status Target::Impl::load_layers(WeightLoader& loader, const ProgressFn& progress) {
    const ModelConfig& config = file.config;
    layers.reserve(config.layers);
    for (int i = 0; i < config.layers; ++i) {
        if (progress)
            progress(i / (config.layers + 1.0),
                     fmt::format("{} layer {} of {}", loader.activity(), i + 1, config.layers));
        DS_ASSIGN(DecoderLayer layer, load_layer(loader, file, i));
        layer_bytes += layer.bytes();
        layers.push_back(std::move(layer));
    }
    DS_ASSIGN(output_norm, read_vector(*file.weights, "output_norm.weight", config.hidden));
    return {};
}

Status Target::Impl::load_weights(const ProgressFn& progress, const WeightCacheOptions& cache) {
    const WeightSource& source = *file.weights;
    const ModelConfig& config = file.config;
    DS_ASSIGN(const TensorInfo* embedding,
              require_tensor(source, "token_embd.weight", {config.vocab, config.hidden}));
    embeddings = {config.vocab, config.hidden, [&source, embedding](TokenId token, float* out) {
                      source.read_row(*embedding, token, out);
                  }};
    // A recorded target may know its attention heads, too: drafters can rotate with its angles.
    if (config.head_dim > 0)
        rope = kernels::make_rope_table(config.head_dim, config.rotation.theta, config.context,
                                        config.rotation.divisors, config.rotation.scale);
    WeightLoader loader(*backend, precision, source, make_plan(file, shape, precision), cache);
    if (!is_head_only(config)) DS_TRY(load_layers(loader, progress));
    if (progress)
        progress(config.layers / (config.layers + 1.0), fmt::format("{} the LM head", loader.activity()));
    DS_ASSIGN(lm_head, loader.next());
    if (progress && loader.writing()) progress(1.0, "waiting for the packed weights to be on disk");
    load_report = loader.finish();
    if (!is_head_only(config)) DS_TRY(pass.prepare(*backend, shape, rope, layers, output_norm, lm_head));
    if (progress) progress(1.0, "target ready");
    return {};
}

void Target::Impl::embed(std::span<const TokenId> tokens, Rows<float> out) const {
    assert(out.rows == static_cast<int>(tokens.size()) && out.cols == shape.hidden);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        embeddings.read(tokens[i], out.row_data(static_cast<int>(i)));
    }
}

Status Target::Impl::check_sequence(const SequenceTokens& sequence) const {
    const int rows = static_cast<int>(sequence.tokens.size());
    const KvCache* cache = sequence.cache;
    if (cache == nullptr || cache->layers() != file.config.layers || cache->kv_width() != shape.kv_width() ||
        cache->type() != kv_type_for(precision)) {
        return failed("target forward: a sequence's KV cache was not made by this target");
    }
    if (sequence.mask != nullptr &&
        (sequence.mask->nodes() != rows || static_cast<int>(sequence.depths.size()) != rows)) {
        return failed("target forward: {} rows with {} depths and a mask of {} nodes", rows,
                      sequence.depths.size(), sequence.mask->nodes());
    }
    if (rows > cache->free_slots()) {
        return failed("target forward: {} rows do not fit into the {} free of {} KV slots; clip the tree",
                      rows, cache->free_slots(), cache->slots());
    }
    int max_depth = rows - 1;
    if (sequence.mask != nullptr) {
        max_depth = rows == 0 ? -1 : *std::max_element(sequence.depths.begin(), sequence.depths.end());
    }
    if (cache->length() + max_depth >= file.config.context) {
        return failed("target forward: position {} is past the model's context of {} tokens",
                      cache->length() + max_depth, file.config.context);
    }
    for (const TokenId token : sequence.tokens) {
        if (token < 0 || token >= file.config.vocab) {
            return failed("target forward: token id {} is outside the vocabulary of {}", token,
                          file.config.vocab);
        }
    }
    return {};
}

Status Target::Impl::check(const ForwardRequest& request) const {
    if (layers.empty()) return failed("target forward: {} was opened without its layers", path);
    int rows = 0;
    for (const SequenceTokens& sequence : request.sequences) {
        DS_TRY(check_sequence(sequence));
        rows += static_cast<int>(sequence.tokens.size());
    }
    for (const int layer : request.aux_layers) {
        if (layer < 0 || layer > file.config.layers) {
            return failed("target forward: aux layer {} does not exist, the target has {} layers", layer,
                          file.config.layers);
        }
    }
    for (const int row : request.logit_rows) {
        if (row < 0 || row >= rows) {
            return failed("target forward: logits requested for row {} of {}", row, rows);
        }
    }
    return {};
}

void Target::Impl::add_rows(const SequenceTokens& sequence) {
    const int committed = sequence.cache->length();
    const int rows = static_cast<int>(sequence.tokens.size());
    for (int i = 0; i < rows; ++i) {
        if (sequence.mask == nullptr) {
            batch.add_row(*sequence.cache, committed + i, committed + i, committed + i + 1);
            continue;
        }
        sequence.mask->path(i, node_path);
        for (int& node : node_path) node += committed;
        batch.add_row(*sequence.cache, committed + i, committed + sequence.depths[i], committed, node_path);
    }
}

Status Target::Impl::run(std::span<const SequenceTokens> sequences, std::span<const int> aux_layers,
                         float* hidden, float* aux, float* logits) {
    batch.clear();
    for (const SequenceTokens& sequence : sequences) add_rows(sequence);
    const int rows = batch.rows();
    if (rows == 0) return {};
    const int d = shape.hidden;
    if (residual.size() < numel(rows, d)) residual.resize(numel(rows, d));
    const Rows<float> x(residual.data(), rows, d);
    int first = 0;
    for (const SequenceTokens& sequence : sequences) {
        const int n = static_cast<int>(sequence.tokens.size());
        embed(sequence.tokens, x.slice(first, n));
        first += n;
    }
    return pass.run(batch, x, aux_layers, hidden, aux, logits);
}

void Target::Impl::compute_logits(const ForwardRequest& request, ForwardOutput& out) {
    const int d = shape.hidden;
    const int rows = request.all_logits ? out.rows : static_cast<int>(request.logit_rows.size());
    out.logits.resize(numel(rows, lm_head.n()));
    if (rows == 0) return;
    const float* input = out.hidden.data();
    if (!request.all_logits) {
        if (gathered.size() < numel(rows, d)) gathered.resize(numel(rows, d));
        for (int r = 0; r < rows; ++r) {
            const int row = request.logit_rows[r];
            std::memcpy(gathered.data() + numel(r, d), out.hidden.data() + numel(row, d), d * sizeof(float));
        }
        input = gathered.data();
    }
    backend->pool().set_next_weights({});
    kernels::matmul(backend->pool(), lm_head, Rows<const float>(input, rows, d),
                    Rows<float>(out.logits.data(), rows, lm_head.n()));
    out.bytes += lm_head.bytes();
}

namespace {

/// Whether most bytes of the file's matrices are fp16.
bool is_mostly_f16(const WeightSource& weights) {
    std::uint64_t f16 = 0, all = 0;
    for (const std::string& name : weights.names()) {
        const TensorInfo* const tensor = weights.find(name);
        if (tensor == nullptr || tensor->shape.size() < 2) continue;
        all += tensor->bytes;
        f16 += tensor->type == "F16" ? tensor->bytes : 0;
    }
    return 2 * f16 > all;
}

struct LoadPlan {
    kernels::Precision precision;
    std::optional<std::uint64_t> available;  ///< memory
    int positions;                           ///< whose rotation angles are computed first
    kernels::Float16Kind dtype = kernels::Float16Kind::bf16;
};

Result<LoadPlan> plan_load(const ModelFile& file, const kernels::Backend& backend,
                           std::optional<kernels::Precision> precision, int context) {
    using kernels::Precision;
    // On the CPU, angles are computed for the positions in use.
    if (backend.is_host())
        return LoadPlan{precision.value_or(file.auto_precision()), available_memory(), std::max(context, 0)};
    if (precision.value_or(Precision::bf16) != Precision::bf16)
        return bad_input("--precision {}: weights on a device are bf16; use bf16 or auto",
                         kernels::to_text(*precision));
    LoadPlan plan{Precision::bf16, backend.info().memory_bytes, file.config.context};
    // Without --precision, a device computes in the checkpoint's 16-bit type.
    if (!precision && file.weights != nullptr && is_mostly_f16(*file.weights))
        plan.dtype = kernels::Float16Kind::f16;
    return plan;
}

}  // namespace

Target::Target(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Target::~Target() = default;

Result<std::unique_ptr<Target>> Target::load(const std::string& path, kernels::Backend& backend,
                                             std::optional<kernels::Precision> precision,
                                             const ProgressFn& progress, const WeightCacheOptions& cache,
                                             int context) {
    if (progress) progress(0.0, "opening the model");
    DS_ASSIGN(ModelFile file, open_model_file(path));
    if (context > file.config.context)
        return bad_input("--context {}: is more than the {} positions of {}; leave it out or choose fewer",
                         context, file.config.context, path);
    if (context > 0) file.config.context = context;
    DS_ASSIGN(const LoadPlan plan, plan_load(file, backend, precision, context));
    if (!precision && plan.precision == kernels::Precision::int4)
        add_note(
            file.notes,
            "{}: --precision auto chose int4: most weights are {}, which int4 holds; matrices in more bits "
            "are int8",
            path, file.quantisation);
    DS_TRY(check_memory(file, plan.precision, plan.available, plan.positions));
    backend.set_dtype(plan.dtype);
    return build(std::move(file), backend, plan.precision, progress, cache);
}

Result<std::unique_ptr<Target>> Target::build(ModelFile file, kernels::Backend& backend,
                                              kernels::Precision precision, const ProgressFn& progress,
                                              const WeightCacheOptions& cache) {
    if (file.weights == nullptr) return failed("a target needs weights");
    DS_TRY(check_config(file.config, file.weights->path()));
    auto impl = std::make_unique<Impl>();
    impl->backend = &backend;
    impl->file = std::move(file);
    impl->shape = layer_shape(impl->file.config);
    impl->precision = !backend.is_host() ? kernels::Precision::bf16 : precision;
    impl->path = impl->file.weights->path();
    DS_TRY(impl->load_weights(progress, cache));
    return std::unique_ptr<Target>(new Target(std::move(impl)));
}

const ModelConfig& Target::config() const {
    return impl_->file.config;
}
const Tokenizer* Target::tokenizer() const {
    return impl_->file.tokenizer.get();
}
const ChatTemplate& Target::chat() const {
    return impl_->file.chat;
}
const Notes& Target::notes() const {
    return impl_->file.notes;
}
kernels::Precision Target::precision() const {
    return impl_->precision;
}
const std::string& Target::path() const {
    return impl_->path;
}
const LoadReport& Target::load_report() const {
    return impl_->load_report;
}
const kernels::Matrix& Target::lm_head() const {
    return impl_->lm_head;
}
void Target::embed(std::span<const TokenId> tokens, Rows<float> out) const {
    impl_->embed(tokens, out);
}
kernels::EmbeddingTable& Target::embeddings() const {
    return impl_->embeddings;
}
const kernels::RopeTable& Target::rope() const {
    return impl_->rope;
}
const LayerShape& Target::shape() const {
    return impl_->shape;
}
std::span<const DecoderLayer> Target::layers() const {
    return impl_->layers;
}
std::span<const float> Target::output_norm() const {
    return impl_->output_norm;
}
kernels::Backend& Target::backend() const {
    return *impl_->backend;
}
KvCache Target::make_cache(int slots) const {
    return KvCache(config().layers, slots, impl_->shape.kv_width(), kv_type_for(impl_->precision),
                   *impl_->backend);
}
std::size_t Target::weight_bytes() const {
    return impl_->layer_bytes + impl_->output_norm.size() * sizeof(float) + impl_->lm_head.bytes();
}

Status Target::forward(const ForwardRequest& request, ForwardOutput& out) {
    DS_TRY(impl_->check(request));
    int rows = 0;
    for (const SequenceTokens& sequence : request.sequences) rows += static_cast<int>(sequence.tokens.size());
    const int d = impl_->shape.hidden;
    const int aux_width = static_cast<int>(request.aux_layers.size()) * d;
    out.rows = rows;
    out.hidden.resize(numel(rows, d));
    out.aux.resize(numel(rows, aux_width));
    const bool with_logits = !impl_->backend->is_host() && request.all_logits;
    if (with_logits) out.logits.resize(numel(rows, impl_->lm_head.n()));
    DS_TRY(impl_->run(request.sequences, request.aux_layers, out.hidden.data(), out.aux.data(),
                      with_logits ? out.logits.data() : nullptr));
    out.bytes = impl_->layer_bytes + impl_->kv_bytes();
    if (with_logits) {
        out.bytes += impl_->lm_head.bytes();
        return {};
    }
    impl_->compute_logits(request, out);
    return {};
}

/// Adds the rows of a pass to `batch`. Its own arrays have their positions and ancestors.
Status Target::Impl::add_rows(const TreePass& tree_pass) {
    no_slots.assign(tree_pass.rows.width, 0);
    batch.clear();
    for (const TreePass::Tree& tree : tree_pass.trees) {
        KvCache& cache = *tree.cache;
        const int committed = cache.length(), last = committed + tree.levels;
        if (tree.nodes > cache.free_slots() || last >= file.config.context)
            return failed(
                "target forward: a tree of {} nodes and {} levels does not fit after {} of {} slots",
                tree.nodes, tree.levels, committed, cache.slots());
        for (int n = 0; n < tree.nodes; ++n) batch.add_row(cache, committed + n, last, committed, no_slots);
    }
    return {};
}

Result<std::uint64_t> Target::enqueue(const TreePass& pass) {
    Impl& impl = *impl_;
    if (!impl.embeddings.load(*impl.backend)) return impl.backend->out_of_memory("the target's embeddings");
    DS_TRY(impl.add_rows(pass));
    DS_TRY(impl.pass.enqueue(impl.batch, impl.embeddings, pass));
    return impl.layer_bytes + impl.kv_bytes() + impl.lm_head.bytes();
}

Status Target::upload_layout(const TreePass& pass) {
    DS_TRY(impl_->add_rows(pass));
    return impl_->pass.upload_layout(impl_->batch);
}

Status Target::prefill(KvCache& cache, std::span<const TokenId> tokens, std::span<const int> aux_layers,
                       ForwardOutput& out, const std::function<bool()>& cancelled) {
    const int n = static_cast<int>(tokens.size());
    const int d = impl_->shape.hidden;
    const int aux_width = static_cast<int>(aux_layers.size()) * d;
    const SequenceTokens prompt{&cache, tokens, {}, nullptr};
    ForwardRequest request{{&prompt, 1}, aux_layers, {}, false};
    DS_TRY(impl_->check(request));
    out.rows = n;
    out.hidden.resize(numel(n, d));
    out.aux.resize(numel(n, aux_width));
    out.bytes = 0;
    const int max_rows = impl_->backend->limits().prefill_rows;
    for (int first = 0; first < n; first += max_rows) {
        if (cancelled && cancelled()) return Error{ErrorKind::cancelled, "stopped while reading the prompt"};
        const int rows = std::min(max_rows, n - first);
        const SequenceTokens chunk{&cache, tokens.subspan(first, rows), {}, nullptr};
        DS_TRY(impl_->run({&chunk, 1}, aux_layers, out.hidden.data() + numel(first, d),
                          out.aux.data() + numel(first, aux_width)));
        out.bytes += impl_->layer_bytes + impl_->kv_bytes();
        cache.commit(rows);
    }
    const int last = n - 1;
    if (n > 0) request.logit_rows = {&last, 1};
    impl_->compute_logits(request, out);
    return {};
}

}  // namespace draftscope
