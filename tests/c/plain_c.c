/* SPDX-License-Identifier: Apache-2.0
 * isthmus/c.h as C11 sees it: encodes a vector, decodes it, meets an error. */
#include <stdio.h>
#include <stdlib.h>

#include "isthmus/c.h"

static void require(isthmus_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "%s (exit %d)\n", isthmus_error_text(error), isthmus_error_exit_code(error));
  isthmus_error_free(error);
  exit(1);
}

int main(void) {
  enum { kCount = 5000 };
  static float values[kCount], back[kCount];
  for (int i = 0; i < kCount; ++i) values[i] = (float)(i % 100) / 100;
  isthmus_codec* codec = NULL;
  require(isthmus_codec_new("int8", &codec));
  const size_t size = isthmus_codec_bytes(codec, kCount);
  uint8_t* bytes = malloc(size);
  require(isthmus_codec_encode(codec, values, kCount, NULL, bytes, size));
  require(isthmus_codec_decode(codec, bytes, size, back, kCount));
  for (int i = 0; i < kCount; ++i) {
    if (back[i] < values[i] - 0.01F || back[i] > values[i] + 0.01F) return 2;
  }
  isthmus_error* error = isthmus_codec_new("no-codec", &codec);
  if (error == NULL) return 3;
  printf("%zu bytes of %d values; \"%s\"\n", size, kCount, isthmus_error_kind(error));
  isthmus_error_free(error);
  free(bytes);
  isthmus_codec_free(codec);
  return 0;
}
