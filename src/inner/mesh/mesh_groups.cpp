// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/mesh_groups.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "isthmus/errors.h"
#include "transport/collectives/coded_communicator.h"

namespace isthmus {
namespace {
bool draws_random_bits(const Codec& codec) {
  std::vector<float> values(kTileValues);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<float>(i) * 0.7f);
  }
  return encode(codec, values, {.seed = 1}).bytes != encode(codec, values, {.seed = 2}).bytes;
}

// The loss of such a code is not kept: for activations the same element does not come again.
std::unique_ptr<const Codec> codec_for(const char* key, const std::string& spelling) {
  std::unique_ptr<const Codec> codec = make_codec(spelling);
  if (codec->error_feedback()) {
    throw ConfigError(
        fmt::format("parallel.{} = \"{}\": between ranks nothing is kept of what a code "
                    "loses; leave :ef out",
                    key, spelling));
  }
  if (codec->sparse() || draws_random_bits(*codec)) {
    throw ConfigError(
        fmt::format("parallel.{} = \"{}\": between ranks a code must hold all values, "
                    "rounded to nearest; choose a dense codec as int8, fp8-e4m3 or bf16",
                    key, spelling));
  }
  return codec;
}
}  // namespace

void check_rank_codecs(const CodecByDimension& codecs) {
  (void)codec_for("codec_data", codecs.data);
  (void)codec_for("codec_pipeline", codecs.pipeline);
  (void)codec_for("codec_tensor", codecs.tensor);
  (void)codec_for("codec_state", codecs.state);
}

MeshGroups::MeshGroups(const MeshShape& mesh, int key_copies, const CodecByDimension& codecs,
                       Communicator& all_ranks)
    : world(all_ranks),
      tensor_codec(codec_for("codec_tensor", codecs.tensor)),
      pipeline_codec(codec_for("codec_pipeline", codecs.pipeline)),
      data_codec(codec_for("codec_data", codecs.data)),
      state_codec(codec_for("codec_state", codecs.state)) {
  ISTHMUS_CHECK(world.size() == mesh.ranks(), world.size(), mesh.ranks());
  const MeshPosition at = mesh_position(mesh, world.rank());
  const auto group = [&](int color, int key, const Codec& codec) {
    return make_coded_communicator(world.split(color, key), codec);
  };
  tensor = group(at.pp * mesh.dp + at.dp, at.tp, *tensor_codec);
  pipeline = group(at.dp * mesh.tp + at.tp, at.pp, *pipeline_codec);
  data = group(at.pp * mesh.tp + at.tp, at.dp, *data_codec);
  if (key_copies > 1) copies = world.split(world.rank() / key_copies, at.tp);
}

}  // namespace isthmus
