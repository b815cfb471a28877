# Filled in with the shader tools: GLSL to SPIR-V, validated, embedded.
