#include "engine/decode/sequence.h"

#include <cstring>
#include <mutex>

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
    {
        const std::lock_guard lock(backend.submit_mutex());
        backend.download(to.data() + first, device_features.as<float>(), (to.size() - first) * sizeof(float));
        DS_TRY(backend.synchronize());
    }
    kernels::cast_to_dtype(backend, Rows<float>(to.data() + first, device_rows, width));
    return {};
}

void Sequence::store_features(kernels::Backend& backend, const ForwardOutput& forward, int first,
                              std::span<const int> rows, int d, int aux_width) {
    const auto gather = [&](const std::vector<float>& from, int columns, std::vector<float>& to) {
        if (columns == 0) return;
        const std::size_t width = columns;
        to.resize(rows.size() * width);
        for (std::size_t i = 0; i < rows.size(); ++i)
            std::memcpy(to.data() + i * width, from.data() + numel(first + rows[i], width),
                        width * sizeof(float));
        kernels::cast_to_dtype(backend, Rows<float>(to.data(), static_cast<int>(rows.size()), columns));
    };
    new_slots = static_cast<int>(rows.size());
    device_rows = 0;
    gather(forward.hidden, d, hidden);
    gather(forward.aux, aux_width, aux);
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
