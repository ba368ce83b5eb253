# The addon: bindings and engine, built for the plainest CPU that Node itself runs on, linked with the kernels.
{
  'includes': ['kernels.gypi'],
  'targets': [
    {
      'target_name': 'hotbed',
      'dependencies': ['hotbed_kernels'],
      'include_dirs': ['src', '<!(node -p "require(\'node-addon-api\').include_dir")'],
      'defines': ['NAPI_VERSION=8', 'NAPI_CPP_EXCEPTIONS'],
      # Node's own defaults switch exceptions and run-time types off; the engine reports faults by exceptions.
      'cflags_cc!': ['-fno-exceptions', '-fno-rtti', '-std=gnu++17', '-std=gnu++20'],
      'cflags_cc': [
        '-std=c++17', '-O3', '-fPIC', '-ffp-contract=off', '-fno-math-errno', '-Wall', '-Wextra',
      ],
      'sources': ['<!@(node sources.mjs)'],
    },
  ],
}
