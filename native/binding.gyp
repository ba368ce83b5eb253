# The addon. The kernels that differ by instruction set are static libraries, one per path, built from the same files
# with other flags; everything else is built for the plainest CPU that Node itself runs on. Flags are native/Makefile's.
{
  'variables': {
    'base_cflags': ['-O3', '-fPIC', '-ffp-contract=off', '-fno-math-errno', '-Wall', '-Wextra'],
  },
  'target_defaults': {
    'include_dirs': ['src'],
    # Node's own defaults switch these off; the engine reports faults by exceptions.
    'cflags_cc!': ['-fno-exceptions', '-fno-rtti', '-std=gnu++17', '-std=gnu++20'],
    'cflags_cc': ['-std=c++17', '<@(base_cflags)'],
  },
  'targets': [
    {
      'target_name': 'kernels_scalar',
      'type': 'static_library',
      'defines': ['HOTBED_PATH=scalar', 'HOTBED_PATH_scalar'],
      'cflags_cc': ['-mavx2', '-mfma', '-fno-tree-vectorize', '-fno-tree-slp-vectorize'],
      'sources': ['<!@(node sources.mjs path)'],
    },
    {
      'target_name': 'kernels_avx2',
      'type': 'static_library',
      'defines': ['HOTBED_PATH=avx2', 'HOTBED_PATH_avx2'],
      'cflags_cc': ['-mavx2', '-mfma'],
      'sources': ['<!@(node sources.mjs path)'],
    },
    {
      'target_name': 'kernels_avx512',
      'type': 'static_library',
      'defines': ['HOTBED_PATH=avx512', 'HOTBED_PATH_avx512'],
      'cflags_cc': [
        '-mavx512f', '-mavx512dq', '-mavx512bw', '-mavx512vl', '-mavx2', '-mfma',
      ],
      'sources': ['<!@(node sources.mjs path)'],
    },
    {
      'target_name': 'kernels_reference',
      'type': 'static_library',
      'cflags_cc': ['-mavx2', '-mfma', '-fno-tree-vectorize', '-fno-tree-slp-vectorize'],
      'sources': ['<!@(node sources.mjs reference)'],
    },
    {
      'target_name': 'hotbed',
      'dependencies': [
        'kernels_scalar', 'kernels_avx2', 'kernels_avx512', 'kernels_reference',
        '<!(node -p "require(\'node-addon-api\').targets"):node_addon_api_except',
      ],
      'defines': ['NAPI_VERSION=8'],
      'sources': ['<!@(node sources.mjs plain)'],
    },
  ],
}
