"""Language and speech models of Hugging Face's transformers, tiny."""

import torch

from catalogue import model

VOCABULARY, LENGTH = 64, 8
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "max_position_embeddings": 16, "use_cache": False, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}


def ids(batch, length=LENGTH):
    return torch.randint(2, VOCABULARY, (batch, length))


def causal(name, batch, inputs=None, **settings):
    """A causal language model by the beginning of its classes' names; it returns its own loss."""
    import transformers

    config = getattr(transformers, name + "Config")(**{**SIZES, **settings})
    return getattr(transformers, name + "ForCausalLM")(config), {"input_ids": ids(batch), "labels": ids(batch)}


@model("transformers", loss="output:loss")
def hf_gpt2(batch=2):
    import transformers

    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=16, n_embd=32, n_layer=2, n_head=4, use_cache=False, bos_token_id=0,
                                     eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return transformers.GPT2LMHeadModel(config), {"input_ids": ids(batch), "labels": ids(batch)}


@model("transformers", loss="output:loss")
def gpt_neox(batch=2):
    return causal("GPTNeoX", batch, hidden_dropout=0.0, attention_dropout=0.0)


@model("transformers", loss="output:loss")
def llama(batch=2):
    return causal("Llama", batch, num_key_value_heads=2)


@model("transformers", loss="output:loss")
def mistral(batch=2):
    return causal("Mistral", batch, num_key_value_heads=2, sliding_window=4)


@model("transformers", loss="output:loss")
def mixtral(batch=2):
    return causal("Mixtral", batch, num_key_value_heads=2, num_local_experts=4)


@model("transformers", loss="output:loss")
def qwen2(batch=2):
    return causal("Qwen2", batch, num_key_value_heads=2)


@model("transformers", loss="output:loss")
def qwen3(batch=2):
    return causal("Qwen3", batch, num_key_value_heads=2, head_dim=8)


@model("transformers", loss="output:loss")
def qwen3_moe(batch=2):
    return causal("Qwen3Moe", batch, num_key_value_heads=2, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)


DEEPSEEK = {"num_key_value_heads": 4, "moe_intermediate_size": 16, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 2,
            "topk_group": 1, "q_lora_rank": 16, "kv_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "first_k_dense_replace": 1}


@model("transformers", loss="output:loss")
def deepseek_v2(batch=2):
    return causal("DeepseekV2", batch, **DEEPSEEK)


@model("transformers", loss="output:loss")
def deepseek_v3(batch=2):
    return causal("DeepseekV3", batch, **DEEPSEEK)


@model("transformers", loss="output:loss")
def gpt_oss(batch=2):
    return causal("GptOss", batch, num_key_value_heads=2, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=4, layer_types=["sliding_attention", "full_attention"])


@model("transformers", loss="output:loss")
def phi(batch=2):
    return causal("Phi", batch, resid_pdrop=0.0, embd_pdrop=0.0, attention_dropout=0.0)


@model("transformers", loss="output:loss")
def phi3(batch=2):
    return causal("Phi3", batch, num_key_value_heads=2, resid_pdrop=0.0, embd_pdrop=0.0, attention_dropout=0.0)


@model("transformers", loss="output:loss")
def gemma2(batch=2):
    return causal("Gemma2", batch, num_key_value_heads=2, head_dim=8, sliding_window=4)


@model("transformers", loss="output:loss")
def opt(batch=2):
    return causal("OPT", batch, ffn_dim=48, word_embed_proj_dim=32, dropout=0.0, attention_dropout=0.0)


@model("transformers", loss="output:loss")
def bloom(batch=2):
    return causal("Bloom", batch, n_layer=2, n_head=4, hidden_dropout=0.0, attention_dropout=0.0)


@model("transformers", loss="output:loss")
def falcon(batch=2):
    return causal("Falcon", batch, hidden_dropout=0.0, attention_dropout=0.0)


@model("transformers", loss="output:loss")
def mamba(batch=2):
    return causal("Mamba", batch, state_size=4, time_step_rank=4)


@model("transformers", loss="output:loss")
def t5(batch=2):
    import transformers

    config = transformers.T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, dropout_rate=0.0, use_cache=False,
                                   decoder_start_token_id=0, pad_token_id=0)
    return transformers.T5ForConditionalGeneration(config), {"input_ids": ids(batch), "labels": ids(batch, 5)}


BART = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "use_cache": False}


def bart_model(batch, **settings):
    import transformers

    config = transformers.BartConfig(vocab_size=VOCABULARY, max_position_embeddings=16, decoder_start_token_id=0, pad_token_id=0, bos_token_id=0,
                                     eos_token_id=1, forced_eos_token_id=None, **BART, **settings)
    return transformers.BartForConditionalGeneration(config), {"input_ids": ids(batch), "labels": ids(batch)}


@model("transformers", loss="output:loss")
def bart(batch=2):
    return bart_model(batch)


@model("transformers", loss="output:loss", refused="set layerdrop to 0 in the model's configuration (encoder_layerdrop=0")
def bart_layerdrop(batch=2):
    return bart_model(batch, encoder_layerdrop=0.1)


def whisper_model(batch, **settings):
    import transformers

    config = transformers.WhisperConfig(vocab_size=VOCABULARY, num_mel_bins=8, max_source_positions=10, max_target_positions=16, decoder_start_token_id=0,
                                        pad_token_id=0, bos_token_id=0, eos_token_id=1, begin_suppress_tokens=None, suppress_tokens=None, **BART, **settings)
    return transformers.WhisperForConditionalGeneration(config), {"input_features": torch.randn(batch, 8, 20), "labels": ids(batch)}


@model("transformers", loss="output:loss")
def whisper(batch=2):
    return whisper_model(batch)


@model("transformers", loss="output:loss", refused="set layerdrop to 0 in the model's configuration (encoder_layerdrop=0")
def whisper_layerdrop(batch=2):
    return whisper_model(batch, decoder_layerdrop=0.1)


QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@model("transformers", loss="output:loss")
def bert(batch=2):
    import transformers

    config = transformers.BertConfig(**{**SIZES, **QUIET, "num_labels": 3})
    mask = torch.ones(batch, LENGTH, dtype=torch.int64)
    mask[:, 6:] = 0
    return (transformers.BertForSequenceClassification(config),
            {"input_ids": ids(batch), "attention_mask": mask, "labels": torch.randint(0, 3, (batch,))})


@model("transformers", loss="output:loss")
def roberta(batch=2):
    import transformers

    config = transformers.RobertaConfig(**{**SIZES, **QUIET, "pad_token_id": 1})
    return transformers.RobertaForMaskedLM(config), {"input_ids": ids(batch), "labels": ids(batch)}


@model("transformers", loss="output:loss")
def distilbert(batch=2):
    import transformers

    config = transformers.DistilBertConfig(vocab_size=VOCABULARY, dim=32, hidden_dim=48, n_layers=2, n_heads=4, max_position_embeddings=16, dropout=0.0,
                                           attention_dropout=0.0)
    return transformers.DistilBertForMaskedLM(config), {"input_ids": ids(batch), "labels": ids(batch)}


@model("transformers", loss="output:loss")
def electra(batch=2):
    import transformers

    config = transformers.ElectraConfig(**{**SIZES, **QUIET, "embedding_size": 16})
    return transformers.ElectraForMaskedLM(config), {"input_ids": ids(batch), "labels": ids(batch)}


@model("transformers", loss="output:loss", options=("--static-batch",))
def clip(batch=2):
    """Its loss reads the batch's size as a Python number, so that only a fixed batch can be exported."""
    import transformers

    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.CLIPConfig(projection_dim=16, text_config={**small, "vocab_size": VOCABULARY, "max_position_embeddings": 16, "eos_token_id": 1, "bos_token_id": 0},
                                     vision_config={**small, "image_size": 16, "patch_size": 8})

    class WithLoss(transformers.CLIPModel):
        def forward(self, input_ids, pixel_values):
            return {"loss": super().forward(input_ids=input_ids, pixel_values=pixel_values, return_loss=True).loss}

    return WithLoss(config), {"input_ids": ids(batch), "pixel_values": torch.randn(batch, 3, 16, 16)}


@model("transformers", loss="output:loss")
def vit(batch=2):
    import transformers

    config = transformers.ViTConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=16, patch_size=8, **QUIET)
    return transformers.ViTForImageClassification(config), {"pixel_values": torch.randn(batch, 3, 16, 16), "labels": torch.randint(0, 2, (batch,))}
