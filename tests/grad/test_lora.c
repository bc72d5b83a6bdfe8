/* Adapters in double: their gradients, gradients through them, and frozen weights. */
#include "kit_grad.h"

enum { B = 2, T = 7, V = 11, SAMPLES = 12 };

static struct kit_batch batch;

/* DoRA's row norms are constants to backward, as in its paper: those of the unchanged parameters. */
static double loss_of(struct model *m, struct pass *pass)
{
    m->adapters_version = m->params.version;
    model_forward(m, &batch.b, pass);
    return model_loss(m, 0, 0);
}

/* Gives the adapters values, as B starts at zero. */
static struct model *small(const char *more, int train, int keep)
{
    char text[512];
    kit_fill(&batch, B, T, V, 1);
    batch.target[3] = -1;
    kit_documents(&batch);
    snprintf(
        text, sizeof text,
        "model.layers=2 model.dim=8 model.heads=2 model.ffn=12 model.vocab=%d model.max_seq=%d "
        "model.init_std=0.4 model.lora_r=3 model.lora_alpha=2 %s %s",
        V, T, strstr(more, "model.method") ? "" : "model.method=dense", more);
    struct model *m = kit_model(text, 7, B * T, train, keep);
    kit_shake(m, 0.2, 9);
    return m;
}

static void check(const char *more, int train, int keep)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small(more, train, keep);
    t_true(m->adapters > 0);
    kit_step(m, &batch.b, &pass);
    kit_check_params(more, loss_of, m, &pass, SAMPLES);
    model_free(m);
}

T(adapters_and_all_other_weights_have_the_right_gradients)
{
    check("model.lora_targets=q,k,v,o,gate,up,down", MODEL_TRAIN, 0);
    check("model.lora_targets=q,v model.attn_bias=true model.kv_heads=1", MODEL_TRAIN, 1);
    check("model.mlp=gelu model.mlp_bias=true model.lora_targets=o,up,down", MODEL_TRAIN, 0);
}

T(adapters_over_a_frozen_base_have_the_same_gradients)
{
    check("model.lora_targets=q,k,v,o,gate,up,down", MODEL_TRAIN_OWN, 1);
    check("model.lora_targets=down", MODEL_TRAIN_OWN, 0);
}

T(dropout_uses_the_same_mask_in_forward_and_backward)
{
    check("model.lora_targets=q,k,v,o,gate,up,down model.lora_dropout=0.4", MODEL_TRAIN, 0);
    check("model.lora_targets=q,down model.lora_dropout=0.4", MODEL_TRAIN_OWN, 1);
}

T(dora_has_the_right_gradients_with_its_norms_held)
{
    check("model.lora_targets=q,k,v,o,gate,up,down model.lora_dora=true", MODEL_TRAIN, 0);
    check("model.lora_targets=q,k,v,o,up,down model.lora_dora=true model.mlp=gelu "
          "model.mlp_bias=true "
          "model.attn_bias=true model.kv_heads=1",
          MODEL_TRAIN, 1);
    check("model.lora_targets=q,down model.lora_dora=true", MODEL_TRAIN_OWN, 0);
    check("model.lora_targets=q,k,v,o,gate,up,down model.lora_dora=true model.lora_dropout=0.4",
          MODEL_TRAIN, 0);
    check("model.lora_targets=v,up model.lora_dora=true model.lora_dropout=0.4 "
          "model.attn_bias=true",
          MODEL_TRAIN_OWN, 1);
}

T(biases_patterns_and_saved_modules_have_the_right_gradients)
{
    check("model.lora_targets=q,o,0.k:1:3,1.up:2 model.lora_bias=true model.attn_bias=true",
          MODEL_TRAIN, 0);
    check("model.lora_targets=q,down model.lora_bias=true model.lora_rslora=true", MODEL_TRAIN_OWN,
          1);
    check("model.lora_targets=q model.attn_bias=true model.lora_train_bias=all "
          "model.lora_save=norm,lm_head model.tied=false",
          MODEL_TRAIN_OWN, 0);
    check("model.lora_targets=1.q,0.v model.attn_bias=true model.lora_train_bias=lora_only "
          "model.lora_save=embed_tokens,1.mlp",
          MODEL_TRAIN_OWN, 0);
}

/* Plans with skipped rows: queries are gathered from the rows that are keys. */
static void check_rows(enum kv_policy kv, const char *more)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small(more, MODEL_TRAIN, 0);
    for (int l = 0; l < m->config.layers; l++) {
        struct plan *p = &m->plan[l];
        *p = (struct plan){
            .row = p->row, .gate = p->gate, .weight = p->weight, .layer = l, .kv = kv};
        for (int i = l; i < B * T; i += 2) {
            p->row[p->n] = i;
            p->gate[p->n] = 1;
            p->weight[p->n++] = 0;
        }
        p->active = p->n;
    }
    m->route.frozen = 1;
    kit_step(m, &batch.b, &pass);
    kit_check_params(more, loss_of, m, &pass, SAMPLES);
    model_free(m);
}

T(adapters_of_gathered_rows_have_the_right_gradients)
{
    static const char *const more[] = {"model.lora_targets=q,k,v,o,gate,up,down",
                                       "model.lora_targets=q,v,up model.lora_dropout=0.3",
                                       "model.lora_targets=q,v,up,down model.lora_dora=true",
                                       "model.lora_targets=q,v model.lora_dora=true "
                                       "model.lora_dropout=0.3"};
    for (size_t i = 0; i < DS_LEN(more); i++) {
        check_rows(KV_ALL, more[i]);
        check_rows(KV_PLAN, more[i]);
    }
}
