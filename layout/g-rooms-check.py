import os,re
src='./src/app'
rooms={}
def put(room,names):
    for n in names.split(): rooms[n]=room
put('record','run_directory run_manifest run_log run_log_ranks event_log status_board run_status measured_rounds tensorboard_sink json_line wall_clock note_fields build_info machine_info round_times rank_finding')
put('session/run','timed_inner_loop anchor_mean worker worker_state worker_evaluation lone_training checkpointing resume run_board outer_verdict outer_healing owner_shares training_plan training_run run_worlds config_difference saved_pieces signals run_parts fault_cost')
put('session/site','site_session site_gathering site_meeting site_start site_agreement site_notes site_links site_routes site_enrolment site_lateness site_recording site_board site_board_members site_board_outer outer_words join_host join_host_starting_over newcomer state_source state_server return_pace watched_transport frame_points invitation link_rendezvous link_party')
put('session/hub','hub_run hub_run_sites hub_log hub_lives hub_keys hub_key_book hub_enrolment site_hub')
put('app/cli','terminal text_table usage_error child_process free_ports commands error_catalog cli_errors cli cli_parser cli_bench cli_compare cli_frames cli_hub cli_keygen cli_launch cli_plan cli_plan_mesh cli_replay cli_runs cli_status main completion schema_context launch_environment')
put('app/observe','status_json status_text status_folder status_metrics run_watch progress metric_families http_address http_client http_message http_server live_page round_json hub_board')
put('app/train','training training_checks offload memory_check device_choice rank_communicators mesh_job rank_hang site_lanes run_estimate run_summary hf_model')
put('app/compare','comparison_checks comparison_estimate comparison_files comparison_links comparison_page comparison_plan comparison_retimer comparison_rules comparison_text cell_inputs cell_runner cell_store finished_cells tuning reference_curves')
put('app/commands/bench','command_bench command_bench_codec command_bench_codec_device command_bench_collectives command_bench_exchange command_bench_link link_report link_commands played_ways ways_table frame_report')
put('app/commands/plan','command_plan command_plan_mesh command_plan_pipeline mesh_question')
put('app/commands','command_compare command_data command_demo command_doctor command_doctor_site command_explain command_export_run command_frames command_import_export command_init command_launch command_inspect command_hub command_hub_keys command_keygen command_methods command_replay command_merge command_runs command_report command_status command_train hub_commands inspect inspect_folder inspect_spsa_log job_folders kernel_emulation launched_sites links_flag demo_corpus')
exec(open("layout/g-rooms-extra.py").read())
out=[];missing=[]
for f in sorted(os.listdir(src)):
    if not f.endswith(('.h','.cpp','.in','.cmake')): continue
    stem=f.split('.')[0]
    if stem not in rooms: missing.append(f); continue
    out.append((f,rooms[stem]))
print('missing',missing)
outside=['src/record/round_times.h record','src/record/round_times.cpp record','src/record/tensorboard_event.h record','src/record/tensorboard_event.cpp record','src/record/tensorboard_scalars.h record','src/record/tensorboard_scalars.cpp record','src/record/json_values.h record','src/record/json_values.cpp record','src/report/data/no_value.h record']
allowed={o.split()[0][4:] for o in outside}
open('layout/app_rooms.txt','w').write(''.join(f'{a} {b}\n' for a,b in out)+''.join(o+'\n' for o in outside))
order=['record','session/run','session/site','session/hub','session','app/cli','app/observe','app/train','app/compare','app/commands','app/commands/bench','app/commands/plan']
R=dict(out)
def lvl(r): return order.index(r)
bad=[]
for f,r in out:
    t=open(f'{src}/{f}').read()
    for i in re.findall(r'^#include "([^"]+)"',t,re.M):
        if i.startswith('app/'):
            g=i[4:]
            if g not in R: bad.append((r,f,i,'?')); continue
            if r.startswith('app/'): continue
            if lvl(R[g])>lvl(r): bad.append((r,f,i,R[g]))
        elif i.startswith(('inner/','plan/','report/')) and not r.startswith('app/'):
            if i.startswith('inner/data/') or i in allowed: continue
            bad.append((r,f,i,i.split('/')[0]))
for b in sorted(bad): print(*b)
print(len(bad))
import collections
c=collections.Counter(r for f,r in out); print(c)
