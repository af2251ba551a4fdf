#include "engine/sequence/sequence.h"

#include "base/numel.h"
#include "kernels/host_rows.h"

namespace draftscope {

std::size_t Sequence::append(std::span<const TokenId> added) {
    const std::size_t before = outcome.text.size();
    for (const TokenId token : added) {
        tokens.push_back(token);
        if (text) text->push(token, outcome.text);
    }
    row.generated_tokens = generated();
    return outcome.text.size() - before;
}

Status Sequence::download_features(kernels::Backend& backend, int width, std::vector<float>& to) const {
    const std::size_t first = to.size();
    to.resize(first + numel(device_rows, width));
    DS_TRY(backend.submit([&]() -> Status {
        backend.download(to.data() + first, device_features.as<float>(), (to.size() - first) * sizeof(float));
        return {};
    }));
    kernels::cast_to_dtype(backend, Rows<float>(to.data() + first, device_rows, width));
    return {};
}

void Sequence::store_features(kernels::Backend& backend, const ForwardOutput& prefill, int d, int aux_width) {
    const auto copy = [&](const std::vector<float>& from, int width, std::vector<float>& to) {
        to.assign(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(numel(new_slots, width)));
        kernels::cast_to_dtype(backend, Rows<float>(to.data(), new_slots, width));
    };
    new_slots = outcome.prompt_tokens;
    device_rows = 0;
    if (d > 0) copy(prefill.hidden, d, hidden);
    if (aux_width > 0) copy(prefill.aux, aux_width, aux);
}

std::pair<std::size_t, Finish> truncate_at_stop(const Sequence& sequence, std::span<const TokenId> emitted,
                                                const TextLimits& limits) {
    const std::size_t generated = sequence.generated();
    for (std::size_t count = 1; count <= emitted.size(); ++count) {
        if (limits.eos != nullptr && limits.eos->is_eos(emitted[count - 1])) return {count, Finish::eos};
        if (generated + count >= static_cast<std::size_t>(limits.max_new)) return {count, Finish::length};
        if (sequence.tokens.size() + count >= static_cast<std::size_t>(limits.context))
            return {count, Finish::context};
    }
    return {emitted.size(), Finish::none};
}

}  // namespace draftscope
