"""Where each file of the old tree goes: room(path) -> new path, or None (stays)."""
import re, os
# per old folder: ordered (room, pattern of basenames); first match wins; room relative to repo
T='src/transport'
RULES = {
 'src/transport': [
  (T+'/wire', r'(byte_fields|frame|frame_bytes|frame_record|loss_cause|transport|mailbox|in_process_transport|plain_bytes|recording_transport|contributor_bits|mpi_calls|rank_names|note_stream|epoch)\.(h|cpp)|WIRE_FORMAT\.md|RECORDING_FORMAT\.md'),
  (T+'/links/zmq', r'tcp_counters.*|zmq_.*|link_dialling\..*|link_watch\..*'),
  (T+'/links/relay', r'relay.*|link_allowance.*'),
  (T+'/links/probe', r'probe_.*|link_(probe|survey|measurement)\..*'),
  (T+'/links/tcp', r'tcp_.*'),
  (T+'/links', r'link_.*|stream_policy.*|send_budget.*|key_table.*|told_keys.*|announced_keys.*|name_lookup.*|network_transport.*|frame_queue.*|mpi_transport.*|greeting.*|liveness.*|congestion.*'),
  (T+'/collectives', r'communicator.*|.*_communicator.*|thread_.*|shared_.*|mpi_group.*|nccl_.*|mix_.*|collective_.*|rank_order.*|progress_queue.*|value_bytes.*|rendezvous_word.*'),
  (T+'/exchange/joining', r'(joining_exchange|piece_|donor_throttle|retained_results).*'),
  (T+'/exchange/tree', r'tree_.*'),
  (T+'/exchange', r'.*\.(h|cpp)$'),
 ],
 'src/inner/data': [('src/data', r'.*\.(h|cpp)$')],
 'src/inner/hf': [],
 'src/inner': [
  ('src/inner/cuda', r'cuda_.*|device_.*'),
  ('src/inner/loop', r'language_model_loop.*|model_cost.*|model_timing.*|generate.*'),
  ('src/inner/model', r'weight_copies.*|(gpt2|llama|model|init|arena|presets|optimizer|schedule|samples|closing_product|copy_values|embedding_rows|paged_weights|paged_share)[a-z0-9_]*\..*|local_values.*|tensor_parallel.*'),
  ('src/inner/mesh', r'.*\.(h|cpp)$'),
 ],
 'src/core': [
  ('src/config/check', r'config_check.*'),
  ('src/config/load', r'config_load.*|ways_file.*|link_trace.*'),
  ('src/config/schema', r'config_schema.*|send_cap.*|device_request.*|recompute.*|experiment\.h'),
  ('src/config', r'config.*|experiment.*|links_file.*'),
  ('src/core/state', r'state_.*|checkpoint.*|safetensors.*|own_pages.*'),
  ('src/core/base', r'.*\.(h|cpp)$'),
 ],
 'src/outer': [
  ('src/outer/parts', r'lanes\.h|compressed_mean.*'),
  ('src/outer/parts', r'(spsa_weights|spsa_replay|spsa_log|frozen_momentum|frozen_variance|uncorrected_adam|perturbed_source|clipped_mean|zero_one_schedule)\.(h|cpp)'),
  ('src/outer/methods', r'(co2|ddp|delayed|eager|one_bit_adam|one_round_behind|sparseloco|spsa|streaming_diloco|zero_one_adam|methods|method_table|placed_methods)\.(h|cpp)'),
  ('src/outer/place', r'device_.*|lane.*|outer_placement.*'),
  ('src/outer/parts', r'.*\.(h|cpp)$'),
 ],
 'src/quant': [
  ('src/quant/cuda', r'cuda_codec.*'),
  ('src/quant/math', r'.*_math\.h|block_grids\.h'),
  ('src/quant/cpu', r'.*(_avx2|_avx512|_portable|_x86)\.(h|cpp)|block_(kernels|lanes|loops|steps|statistics|coders).*|codec_isa.*|codec_kernels.*|select_top.*|lane_sums.*|ternary_loops.*'),
  ('src/quant/codecs', r'.*\.(h|cpp)$'),
 ],
 'src/plan': [('src/record', r'round_times\..*')],
 'src/report': [
  ('src/record', r'tensorboard_.*|json_values.*'),
  ('src/report/data', r'cells.*|text\..*'),
  ('src/report/page', r'section_.*|page.*|assets\.h|axis.*|line_chart.*|figures.*|summary_table.*|comparison_(page|report|folder).*|report\..*|csv.*'),
  ('src/report/export', r'export_.*|tensorboard.*|trace_json.*'),
  ('src/report/data', r'.*\.(h|cpp)$'),
 ],
 'kernels/cuda/emulated': [('tests/cuda/emulated', r'.*')],
 'kernels/cuda': [('kernels/cuda/cudnn', r'cudnn_.*')],
 'kernels': [
  ('kernels/cpu', r'fast_(?!kernels).*|.*_fast\.h|simd_.*|product.*|panel\.h|tile\.h|gemm_epilogue.*|gemm_onednn.*'),
 ],
}
KEEP = re.compile(r'(CMakeLists\.txt|README\.md)$')
def g_rooms(path='layout/app_rooms.txt'):
    out={}
    if os.path.exists(path):
        for line in open(path):
            line=line.split('#')[0].strip()
            if line:
                f,r=line.split()[:2]
                out[os.path.basename(f)]=r
    return out
APP=g_rooms()
for _b in list(APP):
    if re.match(r"(cli|cli_(?!errors).*|completion)\.(h|cpp)$",_b): APP[_b]="app/parse"
    if _b.startswith("main."): APP[_b]="app"
def room(path):
    folder, base = os.path.split(path)
    if folder=='src/app':
        r=APP.get(base)
        if not r: return None
        r=r.strip('/')
        if not r.startswith('src/'): r='src/'+r
        return r+'/'+base
    if folder not in RULES or base in('CMakeLists.txt','README.md'): return None
    for r,p in RULES[folder]:
        if re.fullmatch(p,base): return r+'/'+base
    return None
