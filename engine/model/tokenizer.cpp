#include "engine/model/tokenizer.h"

namespace draftscope {

struct Tokenizer::Impl {};

Tokenizer::~Tokenizer() = default;

}  // namespace draftscope
