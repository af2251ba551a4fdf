#pragma once

#include <memory>
#include <span>

#include "base/result.h"
#include "engine/draft/drafter.h"
#include "engine/model/decoder_layer.h"

namespace draftscope {

class EagleOnDevice;

/// What tells the EAGLE generations apart: how a target feature enters, and the layer. A drafter row pairs
/// the hidden of a token with the embedding of the *next* token; d is the drafter's hidden size.
class EagleModel {
  public:
    virtual ~EagleModel() = default;
    virtual const LayerShape& shape() const = 0;
    virtual const kernels::RopeTable& rope() const = 0;
    virtual std::span<const int> aux_layers() const { return {}; }
    virtual int feature_width() const = 0;  ///< of what take_features reads
    virtual void embed(std::span<const TokenId> tokens, Rows<float> out) const = 0;
    /// Target features of verified slots as drafter hiddens, [rows, d]. `hidden` or `aux` is read, as
    /// aux_layers() says.
    virtual void take_features(kernels::Exec& exec, Rows<const float> hidden, Rows<const float> aux,
                               Rows<float> out) = 0;
    /// One pass over `batch`. `inputs` is [rows, 2d], embedding first; `out` [rows, d] is what the next level
    /// takes as hidden.
    virtual void run(kernels::Exec& exec, DecoderBatch& batch, Rows<float> inputs, Rows<float> out) = 0;
    /// The rows that go to the LM head: `out` itself, or a normed copy in the model's own buffer.
    virtual Rows<const float> head_rows(kernels::Exec& exec, Rows<const float> out) = 0;
    virtual const kernels::Matrix* own_head() const { return nullptr; }
    /// Target id of each row of own_head(), rising; empty = row i is token i.
    virtual std::span<const TokenId> own_head_ids() const { return {}; }
    virtual std::size_t weight_bytes() const = 0;
    virtual kernels::KvType kv_type() const = 0;
    /// Where run() keeps keys and values; null = in this memory.
    virtual kernels::Device* device() const { return nullptr; }
    /// The layer on that device.
    virtual EagleOnDevice* on_device() { return nullptr; }
    /// What embed() gives, of all tokens, [vocab, d] on the device; null when there is no room. The caller
    /// holds Device::busy().
    virtual const float* embeddings_there() { return nullptr; }
    /// take_features() on the device, of rows [rows, feature_width()] there, into on_device()'s inputs. False
    /// when this model needs the host for it; nothing is asked for then, nor with 0 rows.
    virtual bool ask_features(const float* /*there*/, int /*rows*/) { return false; }
};

/// The round of EAGLE-2 and EAGLE-3 around one of their models (EAGLE-2, arXiv 2406.16858, sections 4.1 and
/// 4.2). `name` is for messages.
std::unique_ptr<Drafter> make_eagle_drafter(std::unique_ptr<EagleModel> model, std::string_view name);

}  // namespace draftscope
