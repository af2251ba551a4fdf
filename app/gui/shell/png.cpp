#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "app/gui/shell/display.h"

namespace draftscope {
namespace {

void append_u32(std::vector<std::uint8_t>& out, std::uint32_t value) {
    for (int shift : {24, 16, 8, 0}) out.push_back(static_cast<std::uint8_t>(value >> shift));
}

void append_chunk(std::vector<std::uint8_t>& out, const char* type, const std::vector<std::uint8_t>& data) {
    append_u32(out, static_cast<std::uint32_t>(data.size()));
    const std::size_t start = out.size();
    out.insert(out.end(), type, type + 4);
    out.insert(out.end(), data.begin(), data.end());
    append_u32(
        out, static_cast<std::uint32_t>(crc32(0, out.data() + start, static_cast<uInt>(out.size() - start))));
}

/// Puts filter 2 ("up"), which suits uniform areas, before each row.
std::vector<std::uint8_t> filter_rows(const Image& image) {
    const std::size_t row = static_cast<std::size_t>(image.width) * 3;
    std::vector<std::uint8_t> out;
    out.reserve((row + 1) * static_cast<std::size_t>(image.height));
    for (std::size_t y = 0; y < static_cast<std::size_t>(image.height); ++y) {
        out.push_back(2);
        const std::uint8_t* line = image.rgb.data() + y * row;
        for (std::size_t x = 0; x < row; ++x)
            out.push_back(static_cast<std::uint8_t>(line[x] - (y == 0 ? 0 : *(line + x - row))));
    }
    return out;
}

std::vector<std::uint8_t> encode(const Image& image) {
    std::vector<std::uint8_t> out = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    std::vector<std::uint8_t> header;
    append_u32(header, static_cast<std::uint32_t>(image.width));
    append_u32(header, static_cast<std::uint32_t>(image.height));
    header.insert(header.end(), {8, 2, 0, 0, 0});  // 8 bits, RGB, deflate, adaptive filters, no interlace
    append_chunk(out, "IHDR", header);
    const std::vector<std::uint8_t> rows = filter_rows(image);
    uLongf size = compressBound(static_cast<uLong>(rows.size()));
    std::vector<std::uint8_t> packed(size);
    compress2(packed.data(), &size, rows.data(), static_cast<uLong>(rows.size()), 6);
    packed.resize(size);
    append_chunk(out, "IDAT", packed);
    append_chunk(out, "IEND", {});
    return out;
}

}  // namespace

Status write_png(const std::string& path, const Image& image) {
    const std::vector<std::uint8_t> bytes = encode(image);
    const std::string temporary = path + ".part";
    std::error_code error;
    {
        std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
        file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        file.flush();
        if (!file) {
            const int reason = errno;
            file.close();
            std::filesystem::remove(temporary, error);
            return failed("{}: cannot write the picture: {}", path, std::strerror(reason));
        }
    }
    std::filesystem::rename(temporary, path, error);
    if (error) return failed("{}: cannot write the picture: {}", path, error.message());
    return {};
}

}  // namespace draftscope
